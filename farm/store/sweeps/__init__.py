"""Sweeps and jobs."""
