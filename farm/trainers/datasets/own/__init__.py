"""Readers of users' own data sets, whose files are untrusted."""
