"""Step times and trainings of which the truth is known."""
