"""Stores with rows for tests to read."""
