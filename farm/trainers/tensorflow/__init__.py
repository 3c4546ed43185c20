"""Ranks of TensorFlow."""
