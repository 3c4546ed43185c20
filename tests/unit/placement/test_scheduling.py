import dataclasses
from collections.abc import Collection, Iterable, Mapping

import pytest

from farm.gang.snapshots import GangAtWork, LiveAgent, WaitingJob
from farm.placement.agent_index import SHARES_CORES
from farm.placement.scheduling import Placement, explain, place

RESERVE_AFTER_S = 60.0


def agent(
    agent_id: str,
    *,
    machine: str | None = None,
    cpus: Iterable[int] = (0,),
    gpus: Iterable[str] = (),
    can: Iterable[str] = (),
    labels: Iterable[tuple[str, str]] = (),
    kind: str = "",
    version: str | None = "2.21.0",
    busy: bool = False,
    drained: bool = False,
) -> LiveAgent:
    """An idle agent on a machine of its own, unless told otherwise."""
    return LiveAgent(
        agent_id=agent_id,
        machine_id=machine or f"machine of {agent_id}",
        cpus=frozenset(cpus),
        gpus=frozenset(gpus),
        capabilities=frozenset(can),
        labels=frozenset(labels),
        fingerprint=kind,
        framework_version=version,
        is_idle=not busy and not drained,
        is_occupying=busy,
    )


def job(
    job_id: int,
    world_size: int = 1,
    *,
    waited_s: float = 0.0,
    priority: int = 0,
    requires: Iterable[str] = (),
    labels: Iterable[tuple[str, str]] = (),
    avoid: Iterable[str] = (),
    measured_by: Mapping[str, int] | None = None,
    measured_on: Iterable[str] = ("",),
) -> WaitingJob:
    return WaitingJob(
        job_id=job_id,
        agent_count=world_size,
        requires=frozenset(requires),
        labels=frozenset(labels),
        avoid=frozenset(avoid),
        measured_by=measured_by or {},
        measured_on=frozenset(measured_on),
        priority=priority,
        waited_s=waited_s,
    )


def placed(jobs: Collection[WaitingJob], agents: Collection[LiveAgent]) -> list[Placement]:
    return place(jobs, agents, reserve_after_s=RESERVE_AFTER_S)


def placed_ids(jobs: Collection[WaitingJob], agents: Collection[LiveAgent]) -> list[int]:
    return [placement.job_id for placement in placed(jobs, agents)]


def reason(jobs: Collection[WaitingJob], agents: Collection[LiveAgent], *, of: int) -> str:
    return explain(jobs, agents, reserve_after_s=RESERVE_AFTER_S)[of]


def test_a_script_needs_the_framework_alone_that_its_launcher_is_of() -> None:
    able = [
        dataclasses.replace(agent(name, can=can, version=version), has_tensorflow=bool(version))
        for name, can, version in (
            ("a", ["bundles", "python:hf", "tensorflow"], "2.21.0"),
            ("b", ["bundles", "python:hf"], None),
        )
    ]
    for requires, ids in ((["python:hf"], [1]), ([], [1]), (["tensorflow"], [])):
        gang = job(1, world_size=2, requires=["bundles", *requires])
        assert placed_ids([gang], able) == ids
    assert "no agent has capability 'python:jax'" in reason(
        [job(1, requires=["python:jax"])], able, of=1
    )


def test_a_gang_is_whole_or_not_at_all() -> None:
    agents = [agent("a"), agent("b")]
    assert placed([job(1, 3)], agents) == []
    assert placed([job(1, 2)], agents) == [Placement(1, ("a", "b"))]


def test_busy_and_drained_agents_get_nothing() -> None:
    agents = [agent("a", busy=True), agent("b", drained=True), agent("c")]
    assert placed([job(1), job(2)], agents) == [Placement(1, ("c",))]


def test_higher_priority_goes_first_then_longer_wait_then_lower_id() -> None:
    jobs = [
        job(4, waited_s=5),
        job(3, waited_s=5),
        job(2, waited_s=9),
        job(1, priority=-1, waited_s=50),
        job(5, priority=1),
    ]
    agents = [agent(name) for name in "abcde"]
    assert placed_ids(jobs, agents) == [5, 2, 3, 4, 1]


def test_an_agent_needs_every_capability_and_label_that_the_job_asks_for() -> None:
    small, large = ("instance_type", "small"), ("instance_type", "large")
    agents = [
        agent("a", can=["netem"], labels=[small]),
        agent("b", can=["gpu"], labels=[large]),
        agent("c", can=["gpu", "netem"], labels=[large, ("zone", "1")]),
    ]
    waiting = job(1, requires=["netem"], labels=[large])
    assert placed([waiting], agents) == [Placement(1, ("c",))]


def test_plain_agents_go_first_so_that_rare_ones_are_spared() -> None:
    agents = [agent("a", can=["gpu"]), agent("b")]
    jobs = [job(1, waited_s=2), job(2, waited_s=1, requires=["gpu"])]
    assert placed(jobs, agents) == [Placement(1, ("b",)), Placement(2, ("a",))]


def test_a_narrow_job_passes_a_wide_one_that_does_not_fit_yet() -> None:
    agents = [agent("a"), agent("b", busy=True)]
    assert placed_ids([job(1, 2, waited_s=59), job(2)], agents) == [2]


def test_agents_are_held_for_a_job_that_has_waited_too_long() -> None:
    agents = [agent("a"), agent("b", busy=True)]
    assert placed_ids([job(1, 2, waited_s=60), job(2)], agents) == []
    earlier = [job(1, 2, waited_s=50), job(2, waited_s=-10)]
    assert place(earlier, agents, reserve_after_s=RESERVE_AFTER_S, waited_more_s=10) == []


def test_agents_that_the_overdue_job_cannot_use_are_not_held() -> None:
    agents = [agent("a", can=["netem"]), agent("b", can=["netem"], busy=True), agent("c")]
    jobs = [job(1, 2, waited_s=99, requires=["netem"]), job(2), job(3)]
    assert placed(jobs, agents) == [Placement(2, ("c",))]


def test_a_more_urgent_job_takes_what_would_be_held() -> None:
    agents = [agent("a"), agent("b", busy=True)]
    assert placed_ids([job(1, 2, waited_s=99), job(2, priority=1)], agents) == [2]


def test_a_job_wider_than_the_farm_holds_nothing() -> None:
    agents = [agent("a"), agent("b", busy=True)]
    assert placed_ids([job(1, 3, waited_s=999), job(2)], agents) == [2]


def test_drained_agents_do_not_make_the_farm_wider() -> None:
    agents = [agent("a"), agent("b", drained=True)]
    assert placed_ids([job(1, 2, waited_s=999), job(2)], agents) == [2]


def test_agents_that_share_a_core_never_work_at_the_same_time() -> None:
    agents = [
        agent("a", machine="m", cpus=[0, 1]),
        agent("b", machine="m", cpus=[1, 2]),
        agent("c", machine="m", cpus=[2, 3]),
    ]
    assert placed([job(1, 2)], agents) == [Placement(1, ("a", "c"))]
    assert placed([job(1, 3)], agents) == []
    assert len(placed([job(1), job(2), job(3)], agents)) == 2


def test_an_agent_at_work_blocks_those_that_share_its_cores() -> None:
    agents = [
        agent("a", machine="m", cpus=[0, 1], busy=True),
        agent("b", machine="m", cpus=[1, 2]),
        agent("c", machine="m", cpus=[2, 3]),
    ]
    assert placed([job(1), job(2)], agents) == [Placement(1, ("c",))]


def test_equal_cores_of_different_machines_do_not_overlap() -> None:
    agents = [agent("a", cpus=[0, 1]), agent("b", cpus=[0, 1])]
    assert placed([job(1, 2)], agents) == [Placement(1, ("a", "b"))]


def test_an_agent_that_blocks_many_others_goes_last() -> None:
    agents = [
        agent("a-whole", machine="m", cpus=range(4)),
        agent("b-left", machine="m", cpus=[0, 1]),
        agent("c-right", machine="m", cpus=[2, 3]),
    ]
    assert placed([job(1, 2)], agents) == [Placement(1, ("b-left", "c-right"))]


def test_agents_of_several_kinds_are_preferred_by_what_they_block_not_by_kind() -> None:
    one, two = [("zone", "1")], [("zone", "2")]
    agents = [
        agent("a", labels=one),
        agent("b", machine="m", cpus=[0], labels=one),
        agent("c", labels=two),
        agent("d", machine="m", cpus=[0], labels=two),
    ]
    assert placed([job(1, 2)], agents) == [Placement(1, ("a", "c"))]


def test_agents_that_share_a_core_do_not_count_twice_towards_the_width_of_the_farm() -> None:
    agents = [
        agent("a", machine="m", cpus=[0]),
        agent("b", machine="m", cpus=[0]),
    ]
    assert placed_ids([job(1, 2, waited_s=999), job(2)], agents) == [2]


def test_only_ranks_of_one_gang_share_cores_and_only_if_all_of_them_may() -> None:
    hosts = [agent(name, machine="m", cpus=[0], can=[SHARES_CORES]) for name in "abc"]
    assert placed([job(1, 2), job(2)], hosts) == [Placement(1, ("a", "b"))]
    alone = agent("d", machine="m", cpus=[0])
    assert placed_ids([job(1, 4)], [*hosts, alone]) == []


def test_no_two_agents_with_a_gpu_in_common_work_at_once_though_they_may_share_cores() -> None:
    hosts = [
        agent(name, machine="m", cpus=[0], gpus=[gpu], can=[SHARES_CORES])
        for name, gpu in (("a", "GPU-1"), ("b", "GPU-1"), ("c", "GPU-2"))
    ]
    assert placed([job(1, 2)], hosts) == [Placement(1, ("a", "c"))]
    assert placed_ids([job(1, 3)], hosts) == []
    apart = [agent("a", machine="m", cpus=[0], gpus=["GPU-1"]), agent("b", machine="n", cpus=[0])]
    assert placed_ids([job(1, 2)], apart) == [1]


def test_no_more_ranks_share_a_core_than_must() -> None:
    """Three hosts on two cores: two ranks never share one, three need to."""
    hosts = [
        agent(name, machine="m", cpus=[cpu], can=[SHARES_CORES])
        for name, cpu in (("a", 0), ("b", 1), ("c", 0))
    ]
    assert placed([job(1, 2)], hosts) == [Placement(1, ("b", "a"))]
    assert len(placed([job(1, 3)], hosts)[0].agent_ids) == 3

    busy = agent("b", machine="m", cpus=[1], can=[SHARES_CORES], busy=True)
    b_is_busy = [hosts[0], busy, hosts[2]]
    assert placed([job(1, 2)], b_is_busy) == []
    assert reason([job(1, 2)], b_is_busy, of=1).endswith("(1 of 2 can be used)")
    # Whom it failed on before it avoids only if others could do as well.
    assert placed([job(1, 2, avoid=["b"])], hosts) == [Placement(1, ("b", "a"))]


def test_a_wide_gang_is_spread_over_the_cores() -> None:
    hosts = [
        agent(name, machine="m", cpus=[cpu], can=[SHARES_CORES])
        for name, cpu in (("a", 0), ("b", 0), ("c", 0), ("d", 1), ("e", 1), ("f", 1))
    ]
    [gang] = placed([job(1, 4)], hosts)
    assert sorted(gang.agent_ids) == ["a", "b", "d", "e"]


def test_holding_an_agent_holds_its_cores() -> None:
    agents = [
        agent("a", machine="m", cpus=[0], can=["netem"]),
        agent("b", machine="m", cpus=[0]),
        agent("c", can=["netem"], busy=True),
    ]
    assert placed_ids([job(1, 2, waited_s=99, requires=["netem"]), job(2)], agents) == []


def test_several_gangs_fit_on_one_machine() -> None:
    agents = [agent(f"a{i}", machine="m", cpus=[i]) for i in range(5)]
    gangs = placed([job(1, 2), job(2, 2), job(3, 2)], agents)
    assert gangs == [Placement(1, ("a0", "a1")), Placement(2, ("a2", "a3"))]


def test_a_wider_job_of_the_same_wish_is_passed_over_but_a_narrower_one_is_not() -> None:
    agents = [agent("a"), agent("b"), agent("c", busy=True)]
    jobs = [job(1, 3, waited_s=3), job(2, 3, waited_s=2), job(3, 2, waited_s=1)]
    assert placed_ids(jobs, agents) == [3]


WAITS = {
    "nobody is there": (
        [job(1)],
        [],
        "no agent is alive",
    ),
    "a capability is missing": (
        [job(1, requires=["netem"])],
        [agent("a")],
        "no agent has capability 'netem'",
    ),
    "there are too few GPUs": (
        [job(1, requires=["gpus:4"])],
        [agent("a", can=["gpus:1", "gpus:2"])],
        "no agent has 4 GPUs",
    ),
    "a label is missing": (
        [job(1, labels=[("instance_type", "X")])],
        [agent("a", labels=[("instance_type", "Y")])],
        "labels instance_type=X: no agent",
    ),
    "no agent has all of it": (
        [job(1, requires=["gpu", "netem"])],
        [agent("a", can=["gpu"]), agent("b", can=["netem"])],
        "no single agent comes with gpu and netem",
    ),
    "the farm is too narrow": (
        [job(1, 4, requires=["netem"])],
        [agent("a", can=["netem"]), agent("b", can=["netem"], busy=True), agent("c")],
        "needs 4 agents with netem; the farm has 2",
    ),
    "some agents are drained": (
        [job(1, 2)],
        [agent("a"), agent("b", drained=True)],
        "needs 2 agents; the farm has 1, and 1 more that take no jobs now",
    ),
    "the farm has too few cores": (
        [job(1, 2)],
        [agent("a", machine="m", cpus=[0]), agent("b", machine="m", cpus=[0])],
        "needs 2 agents; the farm has 1 that share no core and no GPU (2 in all)",
    ),
    "too few are idle": (
        [job(1, 3)],
        [agent("a"), agent("b"), agent("c", busy=True)],
        "waits for 1 more idle agent (2 of 3)",
    ),
    "an earlier job takes them": (
        [job(2, 2, waited_s=5), job(1, 3)],
        [agent("a"), agent("b"), agent("c")],
        "waits for 2 more idle agents (1 of 3)",
    ),
    "they are held for another": (
        [job(17, 2, waited_s=80), job(1)],
        [agent("a"), agent("b", busy=True)],
        "idle agents are reserved for job 17, which has waited 80 s",
    ),
    "no two agents have one version": (
        [job(1, 2)],
        [agent("a"), agent("b", version="2.20.0")],
        "needs 2 agents of one TensorFlow version; the farm has 1 with 2.21.0 and 1 with 2.20.0",
    ),
    "no version is a version too": (
        [job(1, 3, requires=["netem"])],
        [
            agent("a", can=["netem"], version=None),
            *(agent(name, can=["netem"]) for name in "bc"),
        ],
        "needs 3 agents with netem of one TensorFlow version; "
        "the farm has 2 with 2.21.0 and 1 without TensorFlow",
    ),
    "those of the version that has enough are at work": (
        [job(1, 2)],
        [agent("a"), agent("b", busy=True), agent("c", version="2.20.0")],
        "waits for 1 more idle agent with 2.21.0 (1 of 2)",
    ),
    "cores are taken": (
        [job(1, 1, labels=[("kind", "x")])],
        [
            agent("a", machine="m", cpus=[0, 1], busy=True),
            agent("b", machine="m", cpus=[1], labels=[("kind", "x")]),
        ],
        "cores or GPUs of its idle agents are taken by other agents of the same machine "
        "(0 of 1 can be used)",
    ),
}


@pytest.mark.parametrize(("jobs", "agents", "expected"), WAITS.values(), ids=list(WAITS))
def test_a_waiting_job_says_why(
    jobs: list[WaitingJob], agents: list[LiveAgent], expected: str
) -> None:
    assert reason(jobs, agents, of=1) == expected


def test_the_job_that_agents_are_held_for_is_not_said_to_wait_for_itself() -> None:
    jobs = [job(1, 2, waited_s=80)]
    agents = [agent("a"), agent("b", busy=True)]
    assert reason(jobs, agents, of=1) == "waits for 1 more idle agent (1 of 2)"


def test_a_job_is_not_tried_again_where_it_failed_while_there_are_others() -> None:
    agents = [agent("a"), agent("b"), agent("c")]
    assert placed([job(1, 2, avoid=["a"])], agents) == [Placement(1, ("b", "c"))]


def test_a_job_waits_for_a_busy_agent_rather_than_for_the_one_that_failed_it() -> None:
    agents = [agent("a"), agent("b", busy=True)]
    again = job(1, avoid=["a"])
    assert placed([again], agents) == []
    assert reason([again], agents, of=1) == "waits for others than a, where it failed before"
    assert placed_ids([again, job(2)], agents) == [2]


def test_where_there_are_no_others_the_agent_that_failed_has_to_do() -> None:
    agents = [agent("a"), agent("b")]
    assert placed([job(1, 2, avoid=["a"])], agents) == [Placement(1, ("a", "b"))]


def test_a_gang_has_one_framework_version_and_a_job_of_one_rank_any() -> None:
    agents = [agent("a"), agent("b", version="2.20.0"), agent("c")]
    jobs = [job(1, 2, waited_s=2), job(2, waited_s=1)]
    assert placed(jobs, agents) == [Placement(1, ("a", "c")), Placement(2, ("b",))]


def test_agents_without_the_framework_are_of_one_version() -> None:
    agents = [agent("a", version=None), agent("b"), agent("c", version=None)]
    assert placed([job(1, 2)], agents) == [Placement(1, ("a", "c"))]


def test_a_gang_is_made_of_the_smaller_version_where_the_larger_is_at_work() -> None:
    old = [agent(name, version="2.20.0") for name in "ab"]
    new = [agent(name, busy=name == "c") for name in "cde"]
    assert placed([job(1, 3)], old + new) == []
    assert placed([job(1, 2), job(2, 2)], old + new) == [
        Placement(1, ("d", "e")),
        Placement(2, ("a", "b")),
    ]


def test_an_overdue_gang_holds_agents_of_every_version_that_has_enough() -> None:
    agents = [
        agent("a"),
        agent("b", busy=True),
        agent("c", version="2.20.0"),
        agent("d", version="2.20.0", busy=True),
        agent("e", version="2.19.0"),
    ]
    jobs = [job(1, 2, waited_s=99), *(job(i) for i in range(2, 6))]
    assert placed(jobs, agents) == [Placement(2, ("e",))]


def test_the_agents_that_have_measured_the_cell_least_are_taken() -> None:
    agents = [agent(name) for name in "abcd"]
    again = job(1, 2, measured_by={"a": 1, "b": 2, "c": 1})
    assert placed([again], agents) == [Placement(1, ("d", "a"))]


def test_hardware_that_has_measured_the_cell_goes_before_what_is_not_pooled_with_it() -> None:
    agents = [agent("a", kind="new"), agent("b", kind="old"), agent("c", kind="old")]
    again = job(1, measured_by={"b": 1}, measured_on=["old"])
    assert placed([again], agents) == [Placement(1, ("c",))]
    assert placed([again, job(2), job(3)], agents)[1:] == [
        Placement(2, ("a",)),
        Placement(3, ("b",)),
    ]


def test_nobody_waits_for_an_agent_that_has_not_measured_its_cell() -> None:
    agents = [agent("a"), agent("b", busy=True)]
    assert placed([job(1, measured_by={"a": 5})], agents) == [Placement(1, ("a",))]


def test_an_agent_with_rare_capabilities_is_spared_even_if_it_measured_less() -> None:
    agents = [agent("a", can=["gpu"]), agent("b")]
    assert placed([job(1, measured_by={"b": 3})], agents) == [Placement(1, ("b",))]


def expecting(
    job_id: int, world_size: int, expected_s: float, *, sweep: int = 0, waited_s: float = 0.0
) -> WaitingJob:
    return WaitingJob(
        job_id=job_id,
        sweep_id=sweep,
        agent_count=world_size,
        expected_s=expected_s,
        waited_s=waited_s,
    )


def test_within_a_sweep_what_decides_the_end_goes_first_and_of_equals_the_widest() -> None:
    jobs = [expecting(1, 1, 10), expecting(2, 1, 100), expecting(3, 2, 100)]
    assert placed_ids(jobs, [agent(name) for name in "abcd"]) == [3, 2, 1]


def test_a_longer_job_that_decides_nothing_waits_for_the_first_repetitions() -> None:
    """It would be a tenth of what is left, on one agent as on any number."""
    jobs = [expecting(i, 1, 10) for i in range(8)] + [expecting(8, 1, 12)]
    assert placed_ids(jobs, [agent("a")]) == [0]


def test_sweeps_take_turns() -> None:
    jobs = [expecting(i, 1, 100, sweep=1) for i in range(20)]
    jobs += [expecting(i, 1, 1, sweep=2) for i in range(20, 40)]
    agents = [agent(name) for name in "abcd"]
    assert sorted(placed_ids(jobs, agents)) == [0, 1, 20, 21]


def test_jobs_as_long_as_all_that_is_left_go_first_once_each_sweep_has_something() -> None:
    jobs = [expecting(i, 1, 100, sweep=1) for i in range(4)]
    jobs += [expecting(i, 1, 1, sweep=2) for i in range(4, 8)]
    agents = [agent(name) for name in "abcd"]
    assert sorted(placed_ids(jobs, agents)) == [0, 1, 2, 4]


def test_a_sweep_that_has_agents_lets_the_others_go_first() -> None:
    agents = [agent("a"), agent("b", busy=True)]
    gangs = [GangAtWork(sweep_id=1, agent_ids=("b",), age_s=5.0, expected_s=9.0)]
    jobs = [expecting(1, 1, 99, sweep=1, waited_s=50), expecting(2, 1, 1, sweep=2)]
    placements = place(jobs, agents, reserve_after_s=RESERVE_AFTER_S, gangs=gangs)
    assert placements[0] == Placement(2, ("a",))


def reserved(*, brief_s: float, waited_s: float = 0.0) -> tuple[list[int], dict[int, str]]:
    """A wide job, a brief one behind it, one idle agent, and one at work for ten more seconds."""
    agents = [agent("a"), agent("b", busy=True)]
    gangs = [GangAtWork(sweep_id=7, agent_ids=("b",), age_s=5.0, expected_s=15.0)]
    jobs = [expecting(1, 2, 60, waited_s=waited_s), expecting(2, 1, brief_s, waited_s=waited_s)]
    placements = place(jobs, agents, reserve_after_s=RESERVE_AFTER_S, gangs=gangs)
    reasons = explain(jobs, agents, reserve_after_s=RESERVE_AFTER_S, gangs=gangs)
    return [placement.job_id for placement in placements], reasons


def test_a_reserved_agent_goes_to_a_job_that_is_done_in_time_and_to_no_other() -> None:
    assert reserved(brief_s=9)[0] == [2]
    ids, reasons = reserved(brief_s=11)
    assert ids == []
    assert reasons[2] == (
        "idle agents are reserved for job 1, which has waited 0 s and is expected to start in 10 s"
    )


def test_expectations_are_not_relied_on_for_ever() -> None:
    """Twice the longest gang at work, for one sweep in line, and `reserve_after_s`."""
    assert reserved(brief_s=9, waited_s=60 + 2 * 15 - 1)[0] == [2]
    assert reserved(brief_s=9, waited_s=60 + 2 * 15)[0] == []


def test_a_gang_that_has_passed_its_expectation_is_expected_to_take_as_long_again() -> None:
    late = GangAtWork(sweep_id=1, agent_ids=("a",), age_s=40.0, expected_s=30.0)
    assert late.remaining_s == 40.0
