"""What the farm costs a training: steps, starts, sampling."""
