"""API tokens, and answers kept for requests that are sent again."""
