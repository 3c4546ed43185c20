"""Checks the state of a farm, and returns findings: problems and remedies.

Pure: no clock, no I/O. Each module checks one part of the farm, and gives a remedy for each
problem.
"""
