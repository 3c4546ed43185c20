"""Turns readings of a farm into findings: what is wrong, and what to do.

Pure: no clock, no I/O. Each module judges one part, and says of all that is wrong what to do.
"""
