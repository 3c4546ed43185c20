"""How the ways between the ranks of a gang are timed and tried."""
