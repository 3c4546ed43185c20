"""Checks the state of a farm, and returns findings: problems and remedies.

Pure: no clock, no I/O. Each module judges one part, and says of all that is wrong what to do.
"""
