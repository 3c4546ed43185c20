"""Commands that import, export and plot measurements."""
