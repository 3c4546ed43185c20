"""What is made of a measurement: quantities, noise, precision, scaling."""
