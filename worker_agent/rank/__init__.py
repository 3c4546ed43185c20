"""One rank: its way through the rendezvous, and its resources on this machine."""
