"""Measurements, and queries on them."""
