"""Figures as data; `farm.charts.files` draws them for files and `web.drawing` on pages."""
