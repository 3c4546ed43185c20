"""The server's settings: how one is declared, read and checked."""
