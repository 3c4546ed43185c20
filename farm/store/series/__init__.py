"""Stores and reads the time series of attempts: samples of each second, and step times."""
