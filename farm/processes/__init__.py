"""What every process of the farm needs of the system it runs on."""
