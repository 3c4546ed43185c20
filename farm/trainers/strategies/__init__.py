"""The strategies that a sweep may name. To add one: its file, and its line in STRATEGIES."""

from farm.trainers.contracts import Strategy
from farm.trainers.strategies.mwms_ring import MwmsRing
from farm.trainers.strategies.single import Single

STRATEGIES: tuple[Strategy, ...] = (
    Single(),
    MwmsRing(),
)
