"""Reports of agents, each stored once."""
