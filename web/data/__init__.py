"""The page "Data": whose measurements there are, and imports."""
