"""Access to the web server: identity of callers, their scopes and rate limits."""
