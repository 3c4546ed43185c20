"""What pages and metrics say of the farm as a whole."""
