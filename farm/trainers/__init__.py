"""Trainers: models, data sets, strategies, and the process that runs one rank.

Importing this package, its registries or `farm.registry` loads neither TensorFlow nor NumPy: the
agent and the server only read the descriptions, and the trainer pins itself to its cores first.
"""
