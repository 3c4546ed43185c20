"""The agent's one deciding thread, and what it decides by."""
