"""What the farm adds around jobs, against what people use instead."""
