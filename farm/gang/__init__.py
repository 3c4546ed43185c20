"""The life of a gang: its states, its barriers, its retries, the check of its network."""
