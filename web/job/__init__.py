"""Data for the page of a job."""
