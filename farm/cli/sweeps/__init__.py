"""Commands about sweeps and jobs."""
