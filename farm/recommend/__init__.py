"""Recommends a configuration from measurements, with its uncertainty."""
