"""Trains a rank with PyTorch: joins its process group, steps, exchanges gradients or weights."""
