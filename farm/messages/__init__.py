"""Messages between server, agents and trainers: typed, bounded and signed."""
