"""Benchfarm: how many machines, of which kind, with which strategy, should train a model."""

__version__ = "0.1.0"
