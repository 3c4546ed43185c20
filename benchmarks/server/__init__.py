"""What scheduling, messages and rows cost the server."""
