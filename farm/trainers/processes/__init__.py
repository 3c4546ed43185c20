"""The trainer as a process: how it is forked, limited and ended."""
