"""What is expected of a sweep, and what follows from it once it is measured."""
