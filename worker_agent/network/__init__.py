"""The network of a rank: shaped, guarded, verified and put back."""
