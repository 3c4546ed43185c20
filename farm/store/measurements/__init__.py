"""Measurements and everything that is read from them."""
