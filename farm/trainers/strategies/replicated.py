"""Each rank computes with its own copy of the weights; servers update them and send them back.

This is the "distributed replicated" of TensorFlow's CNN benchmarks. It is like synchronous
parameter servers, but a step pulls the weights at its end and writes them into the copy. A rank
sends its gradients, G bytes, and receives the new weights, G bytes: two messages a step. With S
servers each stores some of the weight tensors, about G/S bytes, and sends n G/S a step.
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
