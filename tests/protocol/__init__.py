"""A farm in one thread: the real scheduler, collector, store and agents, and simulated machines.

What is made up is what lies around the program: time, the broker, the broker clients' processes and
what happens on a machine while it serves a rank. Nothing happens by itself, so that whoever drives
it decides on the order of everything.
"""
