"""From a question to ranked options."""
