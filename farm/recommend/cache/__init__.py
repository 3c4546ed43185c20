"""Caches between questions: measurements and fitted models, in memory and on disk."""
