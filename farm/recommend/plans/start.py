"""Chooses the first measurements of a new workload: three on every curve.

A curve is what one strategy does over the world size, on one kind of machine and network. Its
smallest world size, its largest, and the one nearest to 8 between them pin down how the time of
an exchange grows; and one configuration more than a step has physical terms pins
down their coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from farm.recommend.configuration import Configuration
from farm.recommend.features import NAMES, plain
from farm.text.nouns import counted

_MIDDLE_WORLD_SIZE = 8
LEAST_CONFIGURATIONS = 6  # a step without a bandwidth limit has five terms; one checks them


def start_positions(
    configurations: Sequence[Configuration],
    positions: Iterable[int],
    *,
    tested: Iterable[Configuration],
) -> Mapping[int, str]:
    """Return which of the positions would be a beginning, with what each would begin.

    `tested`: what was measured, planned, or failed. Empty once every curve has its anchors and
    there are enough configurations.
    """
    tested = {plain(c) for c in tested}
    done: dict[tuple[object, ...], set[int]] = {}
    for c in tested:
        done.setdefault(curve(c), set()).add(c.world_size)
    sizes: dict[tuple[object, ...], set[int]] = {}
    for c in configurations:
        sizes.setdefault(curve(c), set()).add(c.world_size)
    wanted = {
        (name, size): text
        for name, of_curve in sizes.items()
        # A curve that is known in as many places needs no beginning, wherever they are.
        if len(done.get(name, ())) < len(anchors(of_curve))
        for size, text in anchors(of_curve).items()
        if size not in done.get(name, ())
    }
    at = {i: (curve(configurations[i]), configurations[i].world_size) for i in positions}
    missing = {i: wanted[key] for i, key in at.items() if key in wanted}
    if missing or len(tested) >= LEAST_CONFIGURATIONS:
        return missing
    first = {(name, size) for name, of_curve in sizes.items() for size in anchors(of_curve)}
    why = f"only {counted(len(tested), 'configuration is', 'configurations are')} known"
    return {i: why for i, key in at.items() if key in first}


def curve(configuration: Configuration) -> tuple[object, ...]:
    """Return what configurations of one curve agree in; one machine exchanges by no strategy."""
    c = plain(configuration)
    names = [n for n in NAMES if not (c.is_one_machine and n in ("strategy", "placement"))]
    return (c.is_one_machine, c.server_count, *(getattr(c, name) for name in names))


def anchors(world_sizes: Iterable[int]) -> dict[int, str]:
    """Return the world sizes to measure first, with what they are."""
    ordered = sorted(set(world_sizes))
    middle = min(ordered, key=lambda n: (abs(math.log(n / _MIDDLE_WORLD_SIZE)), n))
    return {
        middle: "the middle of its curve",
        ordered[0]: "one machine" if ordered[0] == 1 else "the smallest world size of its curve",
        ordered[-1]: "one machine" if ordered[-1] == 1 else "the largest world size of its curve",
    }
