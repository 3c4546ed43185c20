"""Turns what ranks reported into measured quantities; judges noise, precision and scaling."""
