"""Samples and step times."""
