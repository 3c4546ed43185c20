"""The form of a new sweep."""
