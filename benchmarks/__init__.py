"""What the farm itself costs: one figure a module, see docs/performance.md."""
