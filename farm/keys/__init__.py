"""Who may: the keys of agents, the tokens of people and programs, certificates."""
