"""What pages, the API and answers cost the web server."""
