"""Fills a store with the made-up data of a large farm."""
