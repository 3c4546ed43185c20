"""Benchfarm measures distributed training, and recommends machines and strategies for it."""

__version__ = "0.1.0"
