"""Operating-system services for processes: private files, systemd, children, rate limits."""
