"""How good the advice is on measurements that it has not seen."""
