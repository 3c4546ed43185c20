"""The scheduler: starts waiting jobs on idle agents, and leads them to their end."""
