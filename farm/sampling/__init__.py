"""The series of a rank: its grid of seconds, its byte counts, the names of its extras."""
