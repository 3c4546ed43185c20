"""Processes, hosts and limits of this machine for tests."""
