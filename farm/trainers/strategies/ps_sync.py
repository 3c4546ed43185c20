"""Synchronous training with parameter servers, which sum the gradients of all ranks and apply them.

Each step a rank pulls the weights, G bytes, and pushes its gradients, G bytes again: two messages,
of which it sends one. The servers apply once all n ranks have pushed (Chen et al. 2016, "Revisiting
distributed synchronous SGD", without backup workers). With S servers each stores some of the weight
tensors, about G/S bytes, and sends n G/S a step.
"""

from __future__ import annotations

from farm.configuration.catalogue import GANG_AXES, SERVER_AXES, StrategyFacts
from farm.trainers.strategies.tensorflow import ServerStrategy


class PsSync(ServerStrategy):
    facts = StrategyFacts(
        name="ps_sync",
        summary="synchronous parameter servers: all ranks' gradients are applied together",
        framework="tensorflow",
        axes=(*GANG_AXES, *SERVER_AXES, "compile"),
        has_loader=True,
        min_world_size=2,
    )
