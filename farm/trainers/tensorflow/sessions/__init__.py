"""Strategies that store weights on servers or on rank 0, by TensorFlow 1 sessions.

Between-graph replication with sessions of TensorFlow 1: every rank builds its own graph and drives
its own loop, and nobody is a chief that only gives orders, as `ParameterServerStrategy` would need.
A process that keeps what is shared is called a keeper: a server, or rank 0 of `central_reduce`.

Seen with TensorFlow 2.21: a run that waits for a stopped process outlasts its own time-out, and so
does the closing of its session. Hence `gang` makes calls that can be given up, and ranks count
heartbeats, so that it is known when to.
"""
