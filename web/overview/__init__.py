"""State of the whole farm, for pages and metrics."""
