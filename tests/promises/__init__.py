"""What the farm promises, as functions over plain values."""
