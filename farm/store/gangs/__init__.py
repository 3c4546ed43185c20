"""Attempts and their leases, from the first look at them to their end."""
