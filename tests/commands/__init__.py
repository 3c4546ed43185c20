"""Run commands, and the installer's functions, in tests."""
