"""Expected cost of sweeps, and recommendations from measured ones."""
