"""The courier: a child process that talks to the broker, so that a hang cannot block the agent."""
