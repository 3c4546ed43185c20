"""Attempts and leases in the database: who holds which agents, what has become of it."""
