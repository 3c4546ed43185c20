"""Agents in the store: rows, heartbeats, keys and history."""
