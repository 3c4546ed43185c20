"""One rank of a training: its states, and its resources on this machine."""
