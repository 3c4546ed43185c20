"""Commands for those who operate a farm."""
