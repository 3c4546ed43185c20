"""Real services for tests: PostgreSQL, Redis, MLflow, certificates."""
