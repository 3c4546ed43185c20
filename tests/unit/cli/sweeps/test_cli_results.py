"""The table of measured cells."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from farm.cells.json_forms import CellSummary
from farm.cells.result_table import notes, table
from farm.cli.sweeps.status import measured_json
from farm.configuration.spec import (
    BatchSplit,
    JobSpec,
    NetworkProfile,
    ServerPlacement,
    TrainingPass,
)
from farm.configuration.sweep import Precision
from farm.measuring.measurement import STEP_TIME_NOTE
from farm.text.display import plain
from tests.facts import lacking
from tests.stored import sweep_cells

_number = itertools.count(1)
FLAG = {"kind": "foreign_load", "message": "", "value": 0.8}


def _job(spec: dict[str, Any] | None = None, **columns: Any) -> SimpleNamespace:
    fields: dict[str, Any] = {
        "model": "small_cnn",
        "dataset": "digits",
        "strategy": "single",
        "world_size": 1,
        "global_batch_size": 32,
        "steps": 10,
    }
    measured: dict[str, Any] = {
        "gradient_bytes": 1000,
        "throughput_examples_per_s": 100.0,
        "step_time_s": 0.01,
        "step_time_p25_s": 0.0098,
        "step_time_p75_s": 0.0103,
    }
    number = next(_number)
    return sweep_cells.measured_job(
        JobSpec(**{**fields, **(spec or {})}), job_id=number, **{**measured, **columns}
    )


RING = {"strategy": "mwms_ring", "world_size": 2}


def _lines(*jobs: SimpleNamespace, **options: Any) -> list[Any]:
    return list(sweep_cells.table(*sweep_cells.lines_of(jobs, **options)).measured)


def _table(*jobs: SimpleNamespace, **options: Any) -> list[dict[str, str]]:
    columns, rows = table(_lines(*jobs, **options))
    titles = [column.title for column in columns]
    return [dict(zip(titles, map(plain, row), strict=True)) for row in rows]


def test_repetitions_become_one_cell_of_their_medians() -> None:
    (line,) = _lines(*(_job(step_time_s=time_s) for time_s in (0.03, 0.01, 0.02)))
    assert (line.repetition_count, line.median_s) == (3, 0.02)


def test_efficiency_is_against_one_rank_with_the_same_batch_and_hardware() -> None:
    lines = _lines(
        _job(),
        _job({"global_batch_size": 64}, throughput_examples_per_s=1000.0),
        _job(RING, throughput_examples_per_s=150.0),
        _job(RING, fingerprint="b"),
    )
    found = [
        (one.configuration["world_size"], one.fingerprint, one.efficiency_ratio) for one in lines
    ]
    assert sorted(found) == [(1, "x", 1.0), (1, "x", 1.0), (2, "b", None), (2, "x", 0.75)]


def test_hardware_of_two_kinds_is_not_pooled() -> None:
    shown = _table(_job(), _job(), _job(fingerprint="0123456789abcdef", step_time_s=0.02))
    assert [(one["hardware"], one["repetitions"]) for one in shown] == [
        ("x", "2"),
        ("0123456789ab", "1"),
    ]
    assert [one["step time"].split(" (")[0] for one in shown] == ["10.0 ms", "20.0 ms"]


def test_failed_measurements_are_no_cell() -> None:
    assert _lines(_job(status="out_of_memory")) == []


@pytest.mark.parametrize(
    ("spec", "title", "shown"),
    [
        ({"model": "mlp"}, "model", ["small_cnn", "mlp"]),
        ({"dataset": "mnist"}, "data set", ["digits", "mnist"]),
        (
            {"training_pass": TrainingPass.FORWARD},
            "pass",
            ["forward + backward", "forward"],
        ),
        ({"network": NetworkProfile(one_way_delay_s=0.005)}, "delay", ["0 s", "5.00 ms"]),
        ({"network": NetworkProfile(packet_loss_ratio=0.01)}, "packet loss", ["0.00 %", "1.00 %"]),
        (
            {"network": NetworkProfile(bandwidth_bytes_per_s=125e6)},
            "bandwidth",
            ["unlimited", None],
        ),
        ({"steps": None, "epochs": 3}, "length", ["10 steps", "3 epochs"]),
        ({"strategy": "ps_async", "world_size": 2, "server_count": 2}, "servers", ["0", "2"]),
        (
            {
                "strategy": "ps_async",
                "world_size": 2,
                "server_count": 1,
                "server_placement": ServerPlacement.APART,
            },
            "servers are",
            ["-", "apart"],
        ),
        ({"replicas_per_rank": 10}, "replicas per rank", ["1", "10"]),
        ({"steps_between_averages": 8}, "steps between averages", ["1", "8"]),
        ({"batch_split": BatchSplit.BY_SPEED}, "batch split", ["even", "by speed"]),
        ({"interface": "infiniband"}, "network", ["-", "infiniband"]),
        ({"steps": 300}, "length", ["10 steps", "300 steps"]),
        ({"warmup_step_count": 0}, "warm-up steps", ["5", "0"]),
        ({"repeat": True}, "repeats data", ["no", "yes"]),
        ({"time_limit_s": 90.0}, "time limit", ["1 h", "1 min 30 s"]),
        ({"labels": {"zone": "a"}}, "labels", [None, "zone=a"]),
        ({"emulator": "tc_netem"}, "emulator", ["-", "tc_netem"]),
    ],
)
def test_what_differs_between_cells_gets_a_column(
    spec: dict[str, Any], title: str, shown: list[str | None]
) -> None:
    rows = _table(_job(), _job(spec), _job(), _job(spec))
    assert [row["repetitions"] for row in rows] == ["2", "2"]
    for row, text in zip(rows, shown, strict=True):
        assert text is None or row[title] == text


def test_what_all_cells_share_and_what_none_has_has_no_column() -> None:
    (line,) = _table(_job())
    assert list(line) == [
        *("batch", "strategy", "world size", "repetitions", "step time", "examples/s"),
        "scaling efficiency",
    ]


@pytest.mark.parametrize(
    ("spec", "sent_bytes", "shown"),
    [
        (RING, 1040.0, "+4.0 %"),
        (RING, None, None),
        ({**RING, "training_pass": TrainingPass.FORWARD}, 10.0, None),
        ({**RING, "strategy": "of another version"}, 10.0, None),
    ],
)
def test_sent_bytes_are_held_against_the_strategys_theory(
    spec: dict[str, Any], sent_bytes: float | None, shown: str | None
) -> None:
    (line,) = _table(_job(spec, sent_bytes_per_step=sent_bytes))
    assert line.get("sent vs theory") == shown


def test_what_only_some_strategies_tell_has_a_column_where_it_was_measured() -> None:
    measured = {
        "idle_ratio": 0.25,
        "push_s": 0.002,
        "update_count": 20,
        "staleness_mean": 0.75,
        "staleness_max": 2,
        "received_bytes_per_step": 1040.0,
    }
    (line,) = _table(_job({"strategy": "ps_async", "world_size": 2, "server_count": 1}, **measured))
    titles = ("idle", "push", "updates", "staleness", "largest staleness", "received per step")
    assert [line[title] for title in titles] == ["25 %", "2.00 ms", "20", "0.75", "2", "1.04 kB"]
    assert "pull" not in line
    (alone,) = _table(_job(received_bytes_per_step=1040.0))
    assert "received per step" not in alone


def _runs(*times_s: float) -> list[SimpleNamespace]:
    return [_job(step_time_s=time_s) for time_s in times_s]


def test_three_runs_have_an_interval_and_fewer_say_how_steps_differ_within_one() -> None:
    def shown(*times_s: float) -> str:
        (line,) = _table(*_runs(*times_s))
        return line["step time"]

    assert shown(0.0101, 0.0100, 0.0099) == "10.0 ms ± 5.1 %"
    assert shown(0.01, 0.01) == "10.0 ms (9.8 to 10.3)"
    assert shown(0.01) == "10.0 ms (9.8 to 10.3)"


def test_a_cell_until_precision_says_how_it_stands_and_has_the_wider_interval() -> None:
    precision = Precision(target_ratio=0.01, min_repetitions=3, max_repetitions=10)
    (shown,) = _table(*_runs(0.0101, 0.0100, 0.0099), precision=precision)
    assert (shown["repetitions"], shown["step time"]) == ("3 running", "10.0 ms ± 6.7 %")


def test_runs_between_which_others_were_measured_are_known_better() -> None:
    lines = _table(
        *(
            _job(
                {"global_batch_size": 64 if n % 7 == 0 else 32},
                step_time_s=0.01 + (n % 7 == 0) * (n / 7 - 1) * 1e-4,
            )
            for n in range(15)
        )
    )
    [of_64] = [line for line in lines if line["batch"] == "64"]
    assert (of_64["repetitions"], of_64["step time"]) == ("3", "10.0 ms ± 2.6 %")


def test_an_outlier_is_marked_and_named_below_the_table() -> None:
    jobs = _runs(0.01, 0.01, 0.013, 0.01)
    assert [line["repetitions"] for line in _table(*jobs)] == ["4*"]
    interval, outlier, of_steps = notes(_lines(*jobs))
    assert lacking(interval, "95 %", "median") == []
    assert outlier.startswith("*")
    assert lacking(outlier, f"job {jobs[2].id}") == []
    assert of_steps == STEP_TIME_NOTE
    in_parentheses, _ = notes(_lines(*_runs(0.01)))
    assert lacking(in_parentheses, "middle half", "within a repetition") == []
    assert notes([]) == []


def test_disturbed_runs_are_marked_and_do_not_count_beside_undisturbed_ones() -> None:
    jobs = [
        _job(step_time_s=0.01),
        _job(step_time_s=0.05, flags=[FLAG]),
        _job(step_time_s=0.06, flags=[FLAG]),
        _job(RING, step_time_s=0.03, flags=[FLAG]),
    ]
    lines = _lines(*jobs)
    assert [(line.median_s, line.repetition_count) for line in lines] == [(0.01, 1), (0.03, 1)]
    assert [line["repetitions"] for line in _table(*jobs)] == ["1", "1!"]
    assert notes(lines)[-1].startswith("!")
    assert lacking(notes(lines)[-1], "3 of 4", "other programs (3)", "2 of them") == []
    assert not any("disturbed" in line for line in notes(_lines(_job())))


def test_frameworks_are_told_apart() -> None:
    shown = _table(_job(framework="torch"), _job(RING, framework="tensorflow"))
    assert [line["framework"] for line in shown] == ["torch", "tensorflow"]


def test_a_line_is_of_its_own_kind_of_hardware_alone() -> None:
    jobs = [_job(fingerprint="b"), _job(), _job(), _job(step_time_s=0.02, fingerprint="b")]
    precision = Precision(target_ratio=0.01, min_repetitions=3, max_repetitions=4)
    lines = _lines(*jobs, precision=precision)
    assert len({line.fingerprint for line in lines}) == 2
    for line in lines:
        own = [job.id for job in jobs if job.fingerprint == line.fingerprint]
        assert (line.first_job_id, line.repetition_count) == (own[0], len(own))
    # How the cell stands is said of each of its lines.
    assert len({line.statistics.target for line in lines}) == 1
    assert lines[0].statistics.target is not None


def test_runs_without_a_step_time_are_counted_and_not_set_aside() -> None:
    partial: dict[str, Any] = {
        "step_time_s": None,
        "step_time_p25_s": None,
        "time_per_epoch_s": 3.0,
    }
    (line,) = _lines(_job(**partial), _job(**partial, flags=[FLAG]))
    assert (line.repetition_count, line.set_aside_count, line.median_s) == (2, 0, None)
    (line,) = _lines(_job(), _job(), _job(**partial))
    assert (line.repetition_count, line.set_aside_count) == (2, 0)


def test_programs_get_what_was_asked_for_under_its_own_name() -> None:
    (line,) = _lines(_job({"steps": None, "epochs": 3}, epochs=3))
    spec = {"epochs": 3, "steps": None, "warmup_step_count": 7}
    cell = CellSummary(line=line, spec=spec, machine_s=1.0)
    shown = measured_json(cell, line)
    assert (shown["epochs"], type(shown["epochs"]), shown["steps"]) == (3, int, None)
    assert (shown["step_time_s"], shown["run_count"], shown["warmup_step_count"]) == (
        0.01,
        1,
        7,
    )


def test_a_cell_names_its_values_its_jobs_by_state_and_its_other_hardware() -> None:
    jobs = [_job(fingerprint="a"), _job(fingerprint="a"), _job(fingerprint="b", flags=[FLAG])]
    (line,) = sweep_cells.lines_of(jobs)
    shown: Any = CellSummary(line=line, spec={"steps": 10}, machine_s=2.0).to_json()
    assert (shown["values"]["global_batch_size"], shown["state"]) == (32, "measured")
    assert (shown["jobs_by_state"]["succeeded"], sum(shown["jobs_by_state"].values())) == (
        3,
        3,
    )
    assert (shown["fingerprint"], shown["repetition_count"], shown["disturbed"]) == (
        "a",
        2,
        [],
    )
    [other] = shown["other_hardware"]
    assert (other["fingerprint"], other["repetition_count"]) == ("b", 1)
    assert [one["kinds"] for one in other["disturbed"]] == [[FLAG["kind"]]]


def test_one_machine_is_as_efficient_as_itself_however_disturbed() -> None:
    less = {"kind": "foreign_load", "message": "", "value": 0.2}
    jobs = [
        _job(throughput_examples_per_s=120.0, flags=[less]),
        _job(throughput_examples_per_s=80.0, flags=[FLAG]),
    ]
    (line,) = _lines(*jobs)
    assert line.efficiency_ratio == 1.0
