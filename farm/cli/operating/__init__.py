"""Commands for operators of a farm."""
