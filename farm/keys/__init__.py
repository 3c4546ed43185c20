"""Authentication: signing keys of agents, API tokens, TLS certificates."""
