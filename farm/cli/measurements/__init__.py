"""Commands that take measurements in and out."""
