"""What is kept from one question to the next, in memory and on disk."""
