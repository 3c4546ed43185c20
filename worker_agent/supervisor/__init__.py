"""The agent's main loop, and its inputs: events, heartbeats, fencing token."""
