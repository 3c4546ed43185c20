"""Facts about the agent's machine: hardware, cloud and control groups."""
