"""Measures what the farm adds around jobs, compared with other ways to run them."""
