"""Answers a question with ranked options."""
