"""Confidence of predictions: held-out errors, intervals, implausible measurements."""
