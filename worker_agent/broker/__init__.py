"""The agent's way to the broker: a process of its own."""
