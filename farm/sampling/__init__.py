"""A rank's samples, one a second: when each is due, how bytes are counted, names of extras."""
