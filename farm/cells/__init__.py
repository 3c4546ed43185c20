"""The table of what a sweep measured, for commands, pages and exports alike."""
