"""Ranks that run a training script of a user's own, unchanged."""
