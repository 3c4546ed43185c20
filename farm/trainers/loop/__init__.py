"""The training loop of one rank, the same for every framework."""
