"""Measures round trips and bandwidth between the ranks of a gang."""
