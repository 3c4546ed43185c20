"""What the page of the data shows, and takes in."""
