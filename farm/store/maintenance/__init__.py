"""Backups, copies, retention and partitions."""
