"""What pages and the API say of advice."""
