"""What server, agents and trainers say to each other: typed, bounded and signed."""
