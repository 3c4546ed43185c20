"""What the page of a sweep shows."""
