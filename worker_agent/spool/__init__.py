"""Reports on disk until they are confirmed, and when to send which."""
