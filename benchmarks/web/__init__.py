"""Measures what pages, the API and answers cost the web server."""
