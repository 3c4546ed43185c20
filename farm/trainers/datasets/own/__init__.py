"""Data sets of a user's own: readers of their files, which may hold anything."""
