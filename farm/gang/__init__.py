"""The life of a gang: its states, barriers and retries, and which reports and heartbeats count."""
