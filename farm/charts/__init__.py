"""What figures show; `farm.charts.files` draws them for files and `web.drawing` on pages."""
