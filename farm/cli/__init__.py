"""The command `farm`."""
