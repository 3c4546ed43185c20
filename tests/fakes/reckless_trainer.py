"""The real trainer with another learning rate, given as its argument: its training goes astray."""

from __future__ import annotations

import sys

from farm.trainers.__main__ import main
from farm.trainers.tensorflow_setup import load_tensorflow

if __name__ == "__main__":
    load_tensorflow()
    import farm.trainers.tensorflow_engine as engine

    engine.LEARNING_RATE = float(sys.argv[1])
    main()
