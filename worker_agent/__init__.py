"""The agent: runs one rank of a training at a time. No database, no TensorFlow."""
