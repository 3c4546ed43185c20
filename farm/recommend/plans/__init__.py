"""Plans of what to measure next."""
