"""Benchmarks of what the farm itself costs, one per module; results: docs/performance.md."""
