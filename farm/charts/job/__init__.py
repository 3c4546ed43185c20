"""The figures of one attempt to run a job."""
