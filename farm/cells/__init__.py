"""The table of a sweep: a row for each configuration, which is a cell, over all its repetitions."""
