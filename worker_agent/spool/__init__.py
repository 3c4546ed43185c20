"""The spool: reports on disk until they are confirmed, and when to send them."""
