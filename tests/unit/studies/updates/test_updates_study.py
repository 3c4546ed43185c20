"""The study of strategies of update: its page on runs whose truth is known, and its claims."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from farm.errors import FarmError
from farm.importers.contracts import read_publication
from farm.importers.graur2019 import GRAUR2019
from farm.measuring.study_run import StudyRun
from farm.studies.contracts import Page
from farm.studies.orderings import judge
from farm.studies.publishing import own_sweep
from farm.studies.updates import UPDATES_STUDY, updates_page
from farm.studies.updates.claims import ORDERINGS
from farm.studies.updates.points import published_values
from farm.submission import plan, read_sweep_file
from tests.stored.study_runs import GRADIENT_BYTES, changed, study_run

ALONE_S = 0.005
# What the exchange adds to a step, in seconds, by strategy and nodes that train.
EXCHANGE_S = {
    "single": {1: 0.0},
    "torch_ddp": {1: -0.001, 2: 0.035},
    "mwms_ring": {2: 0.029, 3: 0.040},
    "central_reduce": {2: 0.050, 3: 0.100},
    "ps_sync": {2: 0.040, 3: 0.060},
    "ps_async": {2: 0.040, 3: 0.050},
    "replicated": {2: 0.045, 3: 0.065},
}


def run(strategy: str, nodes: int = 1, /, *, batch: int = 32, **changes: Any) -> StudyRun:
    """A run whose step is computing, by batch, and the exchange; headers are 7 % of its bytes."""
    step_time_s = ALONE_S * batch / 32 + EXCHANGE_S[strategy][nodes]
    servers = nodes if strategy in ("ps_sync", "ps_async", "replicated") else 0
    ring = 1.07 * 2 * (nodes - 1) / nodes * GRADIENT_BYTES
    is_central = strategy == "central_reduce" or changes.get("server_count") == 1
    fields: dict[str, Any] = {
        "strategy": strategy,
        "world_size": nodes,
        "global_batch_size": batch * nodes,
        "server_count": servers,
        "server_placement": "collocated" if servers else None,
        "training_pass": "forward_backward",
        "step_time_s": step_time_s,
        "throughput_examples_per_s": batch * nodes / step_time_s,
        "wire_bytes_per_step": ring,
        "largest_wire_bytes_per_step": (
            1.07 * (nodes - 1) * GRADIENT_BYTES if is_central and nodes > 1 else ring
        ),
        "resident_bytes": 800_000_000 if servers else 400_000_000,
        "worker_resident_bytes": 400_000_000,
        "server_resident_bytes": 300_000_000 if servers else None,
        "idle_ratio": 0.5,
        "framework": "tensorflow 2.21.0",
    }
    return study_run(**{**fields, **changes})


def apart(**changes: Any) -> StudyRun:
    """Two nodes that train, and one that serves both at 90 ms a step."""
    step_time_s = 0.090
    fields: dict[str, Any] = {
        "server_count": 1,
        "server_placement": "apart",
        "step_time_s": step_time_s,
        "throughput_examples_per_s": 64 / step_time_s,
        "wire_bytes_per_step": 1.07 * GRADIENT_BYTES,
        "largest_wire_bytes_per_step": 1.07 * GRADIENT_BYTES,
        "server_tx_bytes_per_s": 2 * 1.07 * GRADIENT_BYTES / step_time_s,
    }
    return run("ps_sync", 2, **{**fields, **changes})


def whole_study() -> list[StudyRun]:
    """What the sweep asks for, each once: runs that are equal would have no interval."""
    runs = [run(strategy, nodes) for strategy, by in EXCHANGE_S.items() for nodes in by]
    runs += [run("ps_sync", nodes, server_count=1) for nodes in (2, 3)]
    runs += [run("single", batch=256)]
    runs += [run(name, n, batch=256) for name in ("mwms_ring", "ps_sync") for n in (2, 3)]
    for strategy, nodes in (("single", 1), ("mwms_ring", 2), ("mwms_ring", 3)):
        quick: dict[str, Any] = {
            "step_time_s": 0.002,
            "throughput_examples_per_s": nodes * 32 / 0.002,
        }
        runs.append(run(strategy, nodes, training_pass="forward", **quick))
    return [*runs, apart()]


def rows(page: Page, title: str) -> list[list[str]]:
    below = page.text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    lines = re.findall(r"(?:^\|.*\n?)+", below, re.MULTILINE)[-1].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_published_tables_show_every_ordering_that_is_asked() -> None:
    values = published_values(read_publication(GRAUR2019).measurements)

    verdicts = {one.says: str(judge(one, values[one.of])) for one in ORDERINGS}

    assert all(judge(one, values[one.of]).holds for one in ORDERINGS)
    assert verdicts["The ring is faster than servers on all nodes"] == "7 of 10"
    assert verdicts["Servers on all nodes are faster than the central sum"] == "9 of 9"
    assert verdicts["Own copies of the weights make servers on all nodes slower"] == "8 of 10"
    assert verdicts["InfiniBand is faster than Ethernet: servers on all nodes"] == "50 of 50"
    assert verdicts["Two nodes train less than one: ring of Gloo"] == "2 of 2"


def test_the_page_says_which_orderings_hold_here_and_why_others_do_not() -> None:
    found = {row[0].split(". ", 1)[1]: row[1:] for row in orderings(updates_page(whole_study()))}

    assert found["Two nodes train more than one: ring"] == ["2 of 2", "0 of 1", "**no**"]
    assert found["The ring is faster than the central sum"] == ["11 of 11", "2 of 2", "yes"]
    assert found["The forward pass alone is faster: ring"] == ["14 of 14", "3 of 3", "yes"]
    # Three nodes either way, a server counted: 711 against 1 477 examples a second.
    apart_is_slower = "At up to 8 nodes a server apart is slower than servers on all of them"
    assert found[apart_is_slower] == ["6 of 6", "1 of 1", "yes"]
    assert found["InfiniBand is faster than Ethernet: servers on all nodes"][1:] == [
        "-",
        "not told",
    ]


def test_throughput_is_held_against_as_many_nodes_alone() -> None:
    found = {
        (row[0], row[2], row[3], row[4]): row
        for row in rows(updates_page(whole_study()), "All configurations")
    }

    # One node has 6 400 examples a second at either batch, that of PyTorch 8 000.
    trained = "forward and backward"
    assert found["one node", "1", "32", trained][8] == "100 %"
    assert found["ring", "2", "32", trained][6:9] == ["1 882", "1 882", "15 %"]
    assert found["ring of Gloo", "2", "32", trained][8] == "10 %"
    assert found["ring", "3", "256", trained][8] == "50 %"
    assert found["ring", "3", "32", "forward"][8] == "100 %"
    # A server apart is a node that could have trained.
    assert found["server apart", "3", "32", trained][8] == "3.7 %"


def test_bytes_of_nodes_are_held_against_theory_and_those_of_one_place_grow() -> None:
    page = updates_page(whole_study())
    found = {(row[0], row[1]): row[2:] for row in rows(page, "Bytes")}

    assert found["ring", "3"] == ["400", "428", "+7.0 %", "400", "428", "+7.0 %"]
    assert found["servers on all nodes", "3"] == found["ring", "3"]
    assert found["central sum", "3"] == ["400", "428", "+7.0 %", "600", "642", "+7.0 %"]
    assert found["one server on a node", "3"] == found["central sum", "3"]
    assert found["server apart", "3"] == ["300", "321", "+7.0 %", "600", "642", "+7.0 %"]
    assert ("one node", "1") not in found
    assert "from 321 kB to 428 kB" in page.text
    assert re.search(r"642 kB [^.]* 2\.0 times", page.text)


def test_memory_is_told_by_role() -> None:
    page = updates_page(whole_study())
    found = {(row[0], row[1]): row[2:] for row in rows(page, "Memory by role")}

    assert found["servers on all nodes", "2"] == ["400", "400", "300", "300"]
    assert found["ring", "2"] == ["400", "400", "-", "-"]
    assert "75 % of the memory" in page.text


def test_a_few_runs_without_the_later_columns_make_a_page_too() -> None:
    bare = study_run(strategy="single", global_batch_size=32)
    failed = study_run(strategy="mwms_ring", world_size=2, status="out_of_memory", step_time_s=None)
    page = updates_page([bare, failed])

    assert rows(page, "All configurations")[0][6] == "-"
    assert "1 that ended as `out_of_memory`" in page.text
    for drawing in page.drawings:
        drawing.draw()


def test_where_all_runs_are_disturbed_there_is_a_page_without_findings() -> None:
    page = updates_page([changed(one, flags=("steal",)) for one in whole_study()])

    [count] = re.findall(r"So (\d+) of \1 findings are left out", page.text)
    assert int(count) > 0
    assert "not told" in {row[3] for row in orderings(page)}


def test_a_strategy_that_the_study_does_not_have_stands_by_its_own_name() -> None:
    extra = run("mwms_ring", 2, strategy="gossip")
    found = rows(updates_page([*whole_study(), extra]), "All configurations")

    assert [row[0] for row in found if row[1] == "`gossip`"] == ["gossip"]


def test_every_figure_is_drawn() -> None:
    page = updates_page(whole_study())

    assert {f"../images/{drawing.name}.png" for drawing in page.drawings} == set(
        re.findall(r"\]\((\.\./images/[^)]*\.png)\)", page.text)
    )
    assert [len(drawing.draw().axes) for drawing in page.drawings] == [4, 4, 4, 2, 1]


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"model": "resnet18"}, "model resnet18, small_cnn"),
        ({"dataset": "cifar10"}, "data set cifar10, digits"),
        ({"one_way_delay_s": 0.005}, "delay 0.0, 0.005"),
    ],
)
def test_runs_of_other_work_are_refused_and_never_pooled(
    changes: dict[str, Any], value: str
) -> None:
    with pytest.raises(FarmError, match="one model, data set and delay") as refused:
        updates_page([*whole_study(), run("mwms_ring", 2, **changes)])
    assert str(refused.value).endswith(f"got {value}")


def test_without_a_measured_run_there_is_no_page() -> None:
    with pytest.raises(FarmError, match="no measured run"):
        updates_page([study_run(status="out_of_memory", step_time_s=None)])


def test_the_sweep_has_what_the_page_compares_and_the_batch_of_a_node_stays(
    tmp_path: Path,
) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(own_sweep(UPDATES_STUDY).read_text())
    jobs = plan(read_sweep_file(file)).expansion.jobs

    assert {job.global_batch_size / job.world_size for job in jobs} == {32, 256}
    assert max(job.agent_count for job in jobs) == 3
    assert len(jobs) == 75


def orderings(page: Page) -> list[list[str]]:
    return rows(page, "Which orderings agree")
