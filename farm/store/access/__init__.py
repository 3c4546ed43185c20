"""API tokens, and stored answers to POST requests."""
