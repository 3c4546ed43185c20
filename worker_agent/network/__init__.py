"""The network between ranks: emulated, protected, verified and restored."""
