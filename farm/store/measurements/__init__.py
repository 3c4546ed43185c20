"""Stores imported measurements, and queries all measurements."""
