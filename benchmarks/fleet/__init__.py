"""Simulated agents, hundreds per process, which send and receive real messages."""
