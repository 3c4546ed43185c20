"""A sweep as one folder: `farm export --bundle` writes it, `farm import bundle` reads it."""
