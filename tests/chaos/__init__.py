"""A campaign of faults against a farm of real processes, and what it has to keep all the same."""
