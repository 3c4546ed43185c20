"""The web server: pages for people, the JSON API for programs."""
