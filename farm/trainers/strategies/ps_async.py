"""Asynchronous training with parameter servers, which apply each gradient on arrival.

Each step a rank pulls the weights, G bytes, and pushes its gradients, G bytes again: two messages,
of which it sends one. No rank waits for another, so a gradient may be stale: computed from weights
that others have updated since (Dean et al. 2012, "Large scale distributed deep networks"). With S
servers each stores some of the weight tensors, about G/S bytes, and sends n G/S a step.
"""

from __future__ import annotations

from farm.configuration.catalogue import SERVER_AXES, StrategyFacts
from farm.trainers.strategies.tensorflow import ServerStrategy


class PsAsync(ServerStrategy):
    facts = StrategyFacts(
        name="ps_async",
        summary="asynchronous parameter servers: gradients are applied as they arrive, also stale",
        framework="tensorflow",
        axes=("ranks_per_agent", *SERVER_AXES, "compile"),
        has_loader=True,
        min_world_size=2,
        is_synchronous=False,
    )
