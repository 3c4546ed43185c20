"""Strategies of PyTorch."""
