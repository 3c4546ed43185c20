"""The agent of a machine: it serves one rank at a time. No database, no TensorFlow."""
