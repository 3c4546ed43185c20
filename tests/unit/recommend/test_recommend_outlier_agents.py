"""Agents that are far off from others of their kind are found, named, and move no answer."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sqlalchemy.orm import Session

from farm.recommend.contracts import Objective, Question, Recommendation
from farm.recommend.observations import load
from farm.recommend.outlier_agents import (
    AgentComparison,
    TimedMeasurement,
    cannot_tell,
    compare_agents,
)
from farm.recommend.service import recommend
from tests.factories import add_measurement
from tests.facts import lacking

FACTORS = [2.0, 10.0, 0.1, 1e-6]
BUSY = {"kind": "foreign_load", "message": "agent a1, rank 0: 25 % of its cores", "value": 0.25}
# The factor by which a gang takes longer than it should, whose rank 0 comes first.
Effect = Callable[[tuple[str, ...]], float]


def names(count: int) -> list[str]:
    return [f"a{number}" for number in range(1, count + 1)]


def timed(
    number: int, agents: Sequence[str], time_s: float, *, cell: object = "c", **changes: Any
) -> TimedMeasurement:
    return TimedMeasurement(
        measurement_id=number,
        cell=cell,
        agents=tuple(agents),
        times_s=(time_s, 40 * time_s),
        **changes,
    )


def single(times_s: dict[str, Sequence[float]], **changes: Any) -> list[TimedMeasurement]:
    pairs = [(agent, time_s) for agent, own in times_s.items() for time_s in own]
    return [timed(n, [agent], time_s, **changes) for n, (agent, time_s) in enumerate(pairs)]


def simulated(
    chance: random.Random,
    *,
    agents: Sequence[str],
    world_sizes: Sequence[int],
    repetitions: int,
    effect: Effect = lambda _: 1.0,
    noise: Callable[[random.Random], float] = lambda chance: chance.lognormvariate(0, 0.05),
) -> list[TimedMeasurement]:
    """Measure configurations of these sizes: single machines by each agent, gangs at random."""
    found: list[TimedMeasurement] = []
    for size in world_sizes:
        gangs = (
            [(agent,) for agent in agents for _ in range(repetitions)]
            if size == 1
            else [
                tuple(chance.sample(list(agents), size))
                for _ in range(repetitions * len(agents) // size)
            ]
        )
        for gang in gangs:
            time_s = 0.1 / size * noise(chance) * effect(gang)
            found.append(timed(len(found), gang, time_s, cell=size))
    return found


def accused(comparison: AgentComparison) -> set[str]:
    return {agent for one in comparison.outlying for agent in one.agents}


@pytest.mark.parametrize("factor", FACTORS)
def test_a_liar_is_found_among_three_and_more(factor: float) -> None:
    chance = random.Random(1)
    wrong = []
    for _ in range(200):
        agents = names(chance.randint(3, 8))
        found = compare_agents(
            simulated(
                chance,
                agents=agents,
                world_sizes=[1],
                repetitions=chance.randint(3, 5),
                effect=lambda gang: factor if "a1" in gang else 1.0,
            )
        )
        wrong.append(accused(found) != {"a1"})
        for one in found.outlying:
            assert one.time_ratio == pytest.approx(factor, rel=0.2)
            assert one.other_count == len(agents) - 1
    assert sum(wrong) <= 4


@pytest.mark.parametrize("factor", [10.0, 0.1, 1e-6])
def test_one_measurement_of_each_of_three_is_enough_for_what_no_machine_does(factor: float) -> None:
    found = compare_agents(single({"a1": [0.1], "a2": [0.103], "liar": [factor * 0.1]}))
    [one] = found.outlying
    assert (one.agents, sorted(one.set_aside_ids), one.is_everywhere) == (("liar",), [2], True)
    assert "agent liar" in one.message
    assert f"{factor / 1.015:.3g} times as long as those of 2 other agents" in one.message


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("is_telling", [True, False], ids=["as rank 0", "as any rank"])
def test_a_liar_in_gangs_is_found_and_nobody_with_it(factor: float, is_telling: bool) -> None:
    chance = random.Random(2)

    def effect(gang: tuple[str, ...]) -> float:
        return factor if (gang[0] == "a1" if is_telling else "a1" in gang) else 1.0

    runs = [
        compare_agents(
            simulated(chance, agents=names(8), world_sizes=[2, 3], repetitions=10, effect=effect)
        )
        for _ in range(50)
    ]
    assert sum("a1" in accused(found) for found in runs) >= 48
    assert sum(accused(found) > {"a1"} for found in runs) <= 1


def usual(chance: random.Random) -> float:
    return chance.lognormvariate(0, 0.02)


def rough(chance: random.Random) -> float:
    return chance.lognormvariate(0, 0.2)


def two_speeds(chance: random.Random) -> float:
    """Three runs of ten take 2.5 times as long, as where a machine has two states."""
    return chance.lognormvariate(0, 0.03) * (2.5 if chance.random() < 0.3 else 1.0)


def even_speeds(chance: random.Random) -> float:
    return chance.lognormvariate(0, 0.03) * chance.choice([1.0, 3.0])


def heavy(chance: random.Random) -> float:
    """One run of twenty is up to four times as long, and nobody noticed what disturbed it."""
    return chance.lognormvariate(0, 0.05) * (chance.uniform(1, 4) if chance.random() < 0.05 else 1)


@pytest.mark.parametrize("noise", [usual, rough, two_speeds, even_speeds, heavy])
def test_honest_agents_are_hardly_ever_named(noise: Callable[[random.Random], float]) -> None:
    chance = random.Random(3)
    farms = [
        simulated(
            chance,
            agents=names(chance.randint(3, 8)),
            world_sizes=chance.sample([1, 2, 3], chance.randint(1, 3)),
            repetitions=chance.randint(1, 6),
            noise=noise,
        )
        for _ in range(300)
    ]
    assert sum(bool(compare_agents(one).outlying) for one in farms) <= 8


def test_disturbed_measurements_accuse_nobody() -> None:
    chance = random.Random(4)
    for _ in range(100):
        measured = simulated(
            chance, agents=names(4), world_sizes=[1, 2], repetitions=3, noise=usual
        )
        disturbed = [
            timed(100 + n, one.agents, 3 * (one.times_s[0] or 0), cell=one.cell, is_disturbed=True)
            for n, one in enumerate(measured)
            if "a1" in one.agents
        ]
        assert not compare_agents([*measured, *disturbed]).outlying


def test_a_clean_lie_among_disturbed_measurements_is_found() -> None:
    busy = single({"a1": [0.25, 0.2], "a2": [0.3], "a3": [0.2]}, is_disturbed=True)
    assert accused(compare_agents([*busy, timed(9, ["liar"], 1e-7)])) == {"liar"}
    # An honest one may be alone in being undisturbed.
    assert not compare_agents([*busy, timed(9, ["a4"], 0.1)]).outlying


def test_two_agents_cannot_be_compared_and_neither_can_three_in_pairs() -> None:
    two = compare_agents(single({"a1": [0.1] * 5, "a2": [1.0] * 5}))
    assert (two.outlying, two.compared) == ((), frozenset())
    warning = cannot_tell([two], {"a1", "a2"})
    assert lacking(warning, "a1", "a2", "cannot be told", "2 agents", "three") == []
    # Either a3 is slow, or a1 has told of a2 and itself what is not so.
    pairs = [("a1", "a2", 0.1), ("a2", "a3", 1.0), ("a3", "a1", 1.0)]
    three = compare_agents([timed(n, [a, b], t) for n, (a, b, t) in enumerate(pairs)])
    assert (three.outlying, three.compared) == ((), frozenset())
    assert (cannot_tell([three], {"a1"}) or "").startswith("whether the times of agent a1 are")
    # What each did alone tells them apart, and so settles the pairs.
    alone = [timed(10 + n, [a], t, cell=1) for n, (a, t) in enumerate([("a1", 1), ("a2", 1)])]
    compared = compare_agents([timed(n, [a, b], t) for n, (a, b, t) in enumerate(pairs)] + alone)
    assert not compared.outlying
    slow = timed(12, ["a3"], 10, cell=1)
    compared = compare_agents(
        [*(timed(n, [a, b], t) for n, (a, b, t) in enumerate(pairs)), *alone, slow]
    )
    [one] = compared.outlying
    assert (one.agents, sorted(one.set_aside_ids)) == (("a3",), [1, 2, 12])


def test_a_liar_that_measures_most_does_not_make_the_others_odd() -> None:
    found = compare_agents(single({"liar": [0.01] * 50, "a1": [0.1], "a2": [0.1], "a3": [0.101]}))
    assert accused(found) == {"liar"}


def test_two_against_two_accuse_nobody() -> None:
    found = compare_agents(single({"a1": [0.1], "a2": [0.1], "a3": [1.0], "a4": [1.0]}))
    assert not found.outlying
    assert found.compared == {"a1", "a2", "a3", "a4"}


def test_two_liars_among_five_are_found() -> None:
    found = compare_agents(single({"a1": [0.1], "a2": [0.1], "a3": [0.1], "b": [1.0], "c": [1e-6]}))
    assert accused(found) == {"b", "c"}


def test_a_lie_about_one_configuration_is_set_aside_there_alone() -> None:
    cells = [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 0.001]]
    measured = [
        timed(10 * cell + n, [agent], time_s, cell=cell)
        for cell, times_s in enumerate(cells)
        for n, (agent, time_s) in enumerate(zip(["a1", "a2", "liar"], times_s, strict=True))
    ]
    [one] = compare_agents(measured).outlying
    assert (one.agents, sorted(one.set_aside_ids), one.is_everywhere) == (("liar",), [22], False)
    assert (one.far_cell_count, one.cell_count) == (1, 3)


def test_agents_that_always_work_together_are_named_together() -> None:
    gangs = [("a1", "a2", 0.1), ("a3", "a4", 0.1), ("b1", "b2", 5.0), ("a5", "a6", 0.1)]
    [one] = compare_agents([timed(n, [a, b], t) for n, (a, b, t) in enumerate(gangs)]).outlying
    assert one.agents == ("b1", "b2")
    assert lacking(one.message, "agents b1 and b2", "50 times") == []


def test_the_verdict_goes_with_nothing_but_the_ratios_and_not_with_the_order() -> None:
    chance = random.Random(5)
    measured = simulated(
        chance,
        agents=names(5),
        world_sizes=[1, 2],
        repetitions=4,
        effect=lambda gang: 3.0 if "a2" in gang else 1.0,
    )
    found = compare_agents(measured)
    assert accused(found) == {"a2"}
    shuffled = chance.sample(measured, len(measured))
    assert compare_agents(shuffled) == found
    scaled = [
        timed(one.measurement_id, one.agents, 1e-3 * (one.times_s[0] or 0), cell=one.cell)
        for one in measured
    ]
    assert compare_agents(scaled).set_aside_ids == found.set_aside_ids


KEYS = itertools.count()


def measured(
    session: Session, agents: Sequence[str], step_time_s: float | None, **changes: Any
) -> int:
    fields: dict[str, Any] = {
        "step_time_s": step_time_s,
        "time_per_epoch_s": None if step_time_s is None else 45 * step_time_s,
        "steps_per_epoch": 45,
        "strategy": "mwms_ring" if len(agents) > 1 else "single",
        "world_size": len(agents),
        "fingerprint": "f",
        "details": {"agents": list(agents)},
    }
    return add_measurement(session, f"job {next(KEYS)}", **{**fields, **changes})


def honest(session: Session, agents: Sequence[str]) -> None:
    chance = random.Random(6)
    for agent in agents:
        for _ in range(3):
            measured(session, [agent], chance.lognormvariate(0, 0.02) * 0.1, accuracy=0.9)
    for pair in itertools.combinations(agents, 2):
        measured(session, pair, chance.lognormvariate(0, 0.02) * 0.06, accuracy=0.9)


def ask(session: Session) -> Recommendation:
    return recommend(
        session,
        question=Question(model="mlp", dataset="digits", global_batch_size=32),
        objective=Objective(),
    )


@pytest.mark.parametrize("factor", FACTORS)
def test_one_liar_among_honest_runs_cannot_move_an_answer(session: Session, factor: float) -> None:
    honest(session, names(4))
    before = ask(session)
    for _ in range(20):
        measured(session, ["liar"], 0.1 * factor, accuracy=1.0)
        measured(session, ["liar", "a1"], 0.06 * factor, accuracy=1.0)
        measured(session, ["liar", "a2"], 0.06 * factor, flags=[BUSY])
    measured(session, ["liar"], 0.1, global_batch_size=64)
    measured(session, ["liar"], None, status="out_of_memory", strategy="other")
    answer = ask(session)
    assert answer.options == before.options
    assert answer.recommended == before.recommended
    [warning] = set(answer.warnings) - set(before.warnings)
    match = re.fullmatch(
        r"agent liar: measurements with it took (\S+) times as long as those of 4 other agents of "
        r"the same kind, in 2 of 2 configurations; its 62 measurements do not count",
        warning,
    )
    assert match
    assert float(match[1]) == pytest.approx(factor, rel=0.05)
    [known] = load(session, origin="farm").values()
    assert {o.configuration.global_batch_size for o in known.observations} == {32}
    assert not known.failures


def test_with_two_agents_one_line_says_that_it_cannot_be_told(session: Session) -> None:
    honest(session, names(2))
    [*_, last] = ask(session).warnings
    assert lacking(last, "a1", "a2", "cannot be told", "2 agents", "three") == []
    assert not ask(session).cautions


def test_with_four_agents_nothing_is_said_and_nothing_of_what_was_imported(
    session: Session,
) -> None:
    honest(session, names(4))
    assert not any("cannot be told" in warning for warning in ask(session).warnings)
    for n in range(3):
        add_measurement(session, f"row {n}", origin="study", step_time_s=10.0**n, details={})
    answer = recommend(
        session, question=Question(origin="study", global_batch_size=32), objective=Objective()
    )
    assert answer.options[0].repetition_count == 3
    assert not any("told: " in warning for warning in answer.warnings)
