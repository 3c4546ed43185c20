"""Data for the page of a sweep."""
