"""A whole farm on one machine: Redis, store, server and agents."""
