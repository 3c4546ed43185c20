"""Parsing of values that enter a process: JSON, ranges and error messages."""
