"""Strategies that store weights on servers or on rank 0, by TensorFlow 1 sessions.

This is between-graph replication with sessions of TensorFlow 1: every rank builds its own graph and
drives its own loop. There is no chief that only coordinates, as `ParameterServerStrategy` would
need. A process that stores shared weights is called a weight host: a server, or rank 0 of
`central_reduce`.

In TensorFlow 2.21 a run that waits for a stopped process exceeds its own timeout, and so does
closing its session. So `gang` can abandon its calls, and ranks count heartbeats to know when to do
so.
"""
