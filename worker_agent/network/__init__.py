"""The network of a rank: emulated, protected, verified and restored."""
