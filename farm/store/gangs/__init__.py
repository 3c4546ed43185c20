"""Attempts and leases in the database."""
