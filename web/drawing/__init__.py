"""Figures drawn by plotly on pages, and by matplotlib for downloads."""
