"""Jobs that wait, and why."""
