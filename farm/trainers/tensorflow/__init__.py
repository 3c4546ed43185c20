"""Trains a rank with TensorFlow: joins its gang, builds the training step, runs it."""
