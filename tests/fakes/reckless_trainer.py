"""The real trainer with another learning rate, given as its argument: its training goes astray."""

from __future__ import annotations

import sys

from farm.trainers import hyperparameters
from farm.trainers.__main__ import main

if __name__ == "__main__":
    hyperparameters.LEARNING_RATE = float(sys.argv[1])  # before an engine takes it from there
    main()
