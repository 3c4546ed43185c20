"""The figures of one job's attempt."""
