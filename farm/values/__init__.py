"""Values that enter a process: JSON to typed values and back, with ranges and plain refusals."""
