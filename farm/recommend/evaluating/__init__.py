"""Evaluation of recommendations on held-out measurements."""
