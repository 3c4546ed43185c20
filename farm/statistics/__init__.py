"""Medians, intervals and outliers."""
