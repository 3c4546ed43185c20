"""How open pages learn of changes."""
