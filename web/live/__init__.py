"""Notification of open pages about changes."""
