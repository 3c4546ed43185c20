"""Assigns agents to waiting jobs, and explains why the others wait."""
