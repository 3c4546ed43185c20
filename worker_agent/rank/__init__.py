"""One rank: its way through the rendezvous, and what it holds on this machine."""
