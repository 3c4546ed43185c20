"""The collector: takes reports and heartbeats from the broker into the store."""
