"""Figures drawn by matplotlib, as PNG, SVG or PDF."""
