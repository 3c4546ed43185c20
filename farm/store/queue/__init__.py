"""Waiting jobs, and the reasons why they wait."""
