from collections.abc import Iterable
from typing import Any

import pytest

from farm.gang.snapshots import LiveAgent
from farm.submission import plan
from web.new_sweep.preview import Summary, summarise, unserved, widest_gang

CASE: dict[str, Any] = {
    "model": "mlp",
    "dataset": "digits",
    "strategy": ["single", "mwms_ring"],
    "world_size": [1, 2, 4],
    "global_batch_size": [64, 128],
}


def summary(*cases: dict[str, Any], **fields: Any) -> Summary:
    tables = [{**CASE, **case} for case in cases or ({},)]
    return summarise(plan({"name": "n", "skip_impossible": True, "case": tables, **fields}))


def agent(
    name: str,
    *,
    can: Iterable[str] = (),
    labels: Iterable[tuple[str, str]] = (),
    is_busy: bool = False,
    is_drained: bool = False,
    machine: str | None = None,
) -> LiveAgent:
    return LiveAgent(
        agent_id=name,
        machine_id=machine or name,
        cpus=frozenset({0}),
        capabilities=frozenset(can),
        labels=frozenset(labels),
        is_idle=not is_busy and not is_drained,
        is_occupying=is_busy,
    )


TWO = (agent("a"), agent("b"))


def reasons(of: Summary, agents: Iterable[LiveAgent]) -> dict[str, int]:
    return {one.reason: one.job_count for one in unserved(of, list(agents))}


def test_a_sweep_is_summed_up() -> None:
    found = summary(repetitions=3)
    # single on 1 and the ring on 2 and on 4, with 2 batch sizes
    assert (found.job_count, found.max_job_count, found.cell_count) == (18, 18, 6)
    assert found.target_ratio is None
    assert len(found.jobs) == 10
    assert not found.has_networks


def test_what_precision_may_ask_for_is_counted_too() -> None:
    found = summary(repetitions="auto", max_repetitions=7)
    assert (found.job_count, found.max_job_count, found.cell_count) == (18, 42, 6)
    assert found.target_ratio == 0.02


def test_cells_that_cannot_run_are_grouped_by_reason_the_most_frequent_first() -> None:
    found = summary({}, {"strategy": "mwms_ring", "world_size": 1, "global_batch_size": 256})
    assert found.left_out_count == 7
    assert [(one.cell_count, one.reason) for one in found.left_out] == [
        (3, "world_size: expected at least 2 for strategy 'mwms_ring', got 1"),
        (2, "world_size: expected 1 for strategy 'single', got 2"),
        (2, "world_size: expected 1 for strategy 'single', got 4"),
    ]
    assert "world_size=1" in found.left_out[0].cells[0]


def test_only_the_first_reasons_and_cells_are_kept() -> None:
    sizes = {"strategy": "single", "world_size": list(range(1, 51))}
    found = summary({**sizes, "global_batch_size": list(range(50, 60))})
    assert found.left_out_count == 490
    assert (len(found.left_out), found.left_out_reason_count) == (20, 49)
    assert [len(one.cells) for one in found.left_out] == [5] * 20


def test_jobs_wider_than_the_live_agents_are_told_with_the_reason() -> None:
    assert reasons(summary(), TWO) == {"needs 4 agents; the farm has 2": 2}
    assert reasons(summary(), [*TWO, agent("c"), agent("d")]) == {}


def test_agents_at_work_will_be_free_again_and_drained_ones_will_not() -> None:
    busy = [agent("a", is_busy=True), agent("b", is_busy=True)]
    assert reasons(summary({"world_size": [1, 2]}), busy) == {}
    drained = [agent("a"), agent("b", is_drained=True)]
    [reason] = reasons(summary({"world_size": [1, 2]}), drained)
    assert reason.startswith("needs 2 agents; the farm has 1")
    assert (widest_gang(busy), widest_gang(drained)) == (2, 1)


def test_agents_that_share_a_core_do_not_work_together() -> None:
    twins = [agent("a", machine="m"), agent("b", machine="m")]
    assert widest_gang(twins) == 1
    assert widest_gang(TWO) == 2
    assert widest_gang([]) == 0


def test_a_network_needs_agents_that_can_make_one() -> None:
    shaped = summary({"strategy": "mwms_ring", "world_size": 2, "one_way_delay_ms": [0, 20]})
    assert reasons(shaped, TWO) == {"no agent has capability 'network'": 2}
    assert reasons(shaped, [agent(name, can=("network",)) for name in "ab"]) == {}
    named = summary(
        {"strategy": "mwms_ring", "world_size": 2, "one_way_delay_ms": 20, "emulator": "tcp_proxy"}
    )
    assert reasons(named, TWO) == {"no agent has capability 'tcp_proxy'": 2}


def test_several_ranks_need_an_agent_with_as_many_cores() -> None:
    several = summary({"strategy": "mwms_ring", "world_size": 4, "ranks_per_agent": [2, 4]})
    assert {why.partition(",")[0] for why in reasons(several, TWO)} == {
        "no agent has 2 cores for 2 ranks",
        "no agent has 4 cores for 4 ranks",
    }
    able = [agent(name, can=("ranks:2", "ranks:4")) for name in "ab"]
    assert reasons(several, able) == {}


def test_labels_need_agents_that_have_them() -> None:
    picky = summary({"world_size": 1, "labels": {"kind": "rare"}})
    assert reasons(picky, TWO) == {"labels kind=rare: no agent": 2}
    assert reasons(picky, [agent("a", labels=[("kind", "rare")])]) == {}


@pytest.mark.parametrize("agents", [(), TWO])
def test_a_narrow_job_is_served_whatever_wider_ones_lack(agents: tuple[LiveAgent, ...]) -> None:
    found = sum(reasons(summary(), agents).values())
    assert found == (6 if not agents else 2)
