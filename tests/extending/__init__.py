"""Find in a changed copy of the tree what docs/extending.md adds to it."""
