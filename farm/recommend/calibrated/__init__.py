"""How far a prediction may be trusted: held-out errors, intervals, doubts."""
