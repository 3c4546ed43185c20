"""Each rank computes with its own copy of the weights, which servers update and send back.

The "distributed replicated" of TensorFlow's own CNN benchmarks: as synchronous parameter servers,
but a step pulls at its end and writes what it pulled into the copy. A rank sends its gradients, G
bytes, and receives the new weights, G bytes: two messages a step. With S servers each keeps whole
weights, about G/S bytes of them, and sends n G/S a step.
"""

from __future__ import annotations

from farm.configuration.catalogue import GANG_AXES, SERVER_AXES, StrategyFacts
from farm.trainers.strategies.tensorflow import ServerStrategy


class Replicated(ServerStrategy):
    facts = StrategyFacts(
        name="replicated",
        summary="each rank has a copy of the weights; servers apply gradients, send new weights",
        framework="tensorflow",
        axes=(*GANG_AXES, *SERVER_AXES, "compile"),
        has_loader=True,
        min_world_size=2,
    )
