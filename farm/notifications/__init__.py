"""Sends messages when a sweep ends, an agent is lost or a baseline is exceeded."""
