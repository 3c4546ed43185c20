"""The cells of a sweep: one row for each configuration, over all its repetitions."""
