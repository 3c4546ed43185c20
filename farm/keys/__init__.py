"""Proving who somebody is: signing keys of agents, API tokens, TLS certificates."""
