"""The broker client: a child process that talks to the broker, so a hang cannot block the agent."""
