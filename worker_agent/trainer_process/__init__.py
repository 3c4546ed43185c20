"""Trainer processes: their user, their environment, their output, their end."""
