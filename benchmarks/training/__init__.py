"""Measures what the farm adds to a training: step time, start time, sampling."""
