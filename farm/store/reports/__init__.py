"""What agents report, each counted once."""
