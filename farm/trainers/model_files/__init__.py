"""Users' own models: Python files that operators install on their agents."""
