"""Delay without privileges: a process between a rank and its peers."""
