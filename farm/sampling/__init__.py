"""Sampling of a rank once a second: times, byte counts and names of the samples."""
