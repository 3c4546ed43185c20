"""Commands that start a farm or one of its processes."""
