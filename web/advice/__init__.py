"""Recommendations and plans for the pages and the API."""
