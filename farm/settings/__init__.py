"""Settings of the server: their declaration, parsing and checks."""
