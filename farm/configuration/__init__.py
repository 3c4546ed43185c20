"""Configurations: axes, sweep files, and the jobs made from them."""
