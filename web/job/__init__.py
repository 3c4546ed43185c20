"""What the page of a job shows."""
