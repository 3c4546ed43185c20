"""From measurements to an answer. Pure, but for `service`, which reads the store."""
