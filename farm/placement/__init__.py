"""Which waiting job gets which agents, and why the others wait."""
