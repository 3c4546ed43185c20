"""What processes need of the operating system: private files, systemd, children, rate limits."""
