"""Sends messages: a sweep ends or is over budget, an agent is lost, a baseline is exceeded."""
