"""A farm in one thread: the real scheduler, collector, store and agents, and simulated machines.

Everything around the program is simulated: time, the broker, the processes of the broker clients,
and a machine that serves a rank. Nothing happens by itself: the test decides the order of events.
"""
