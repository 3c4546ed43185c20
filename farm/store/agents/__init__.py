"""Agents: their rows, their heartbeats, their keys and their past."""
