"""Trainers: models, data sets, strategies, and the process that runs one rank.

Importing this package, its registries or `farm.registry` loads neither TensorFlow nor NumPy: agent
and server only read the descriptions, and the trainer binds itself to its cores before it imports a
framework.
"""
