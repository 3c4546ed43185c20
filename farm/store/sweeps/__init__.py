"""Stores sweeps and their jobs, and changes their state."""
