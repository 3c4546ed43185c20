"""Text forms of values for people."""
