"""The broker: its URL, its state, its accounts, and Celery's configuration."""
