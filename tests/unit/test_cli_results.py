"""The table of measured cells."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from farm.cli.measured import MeasuredCell, measured_cells
from farm.cli.results import COLUMNS, notes, table, table_rows
from farm.core.axes import AXES
from farm.core.codec import to_json
from farm.core.display import MISSING, plain
from farm.core.measurement import STEP_TIME_NOTE
from farm.core.precision import Target
from farm.core.spec import JobSpec
from farm.store.result_tables import MeasurementRow


def _row(**values: object) -> MeasurementRow:
    known: dict[str, object] = {
        "status": "ok",
        "model": "small_cnn",
        "dataset": "digits",
        "training_pass": "forward_backward",
        "strategy": "single",
        "world_size": 1,
        "server_count": 0,
        "global_batch_size": 32,
        "one_way_delay_s": 0.0,
        "packet_loss_ratio": 0.0,
        "fingerprint": "a",
        "gradient_bytes": 1000,
        "throughput_examples_per_s": 100.0,
        "step_time_s": 0.01,
        "step_time_p25_s": 0.0098,
        "step_time_p75_s": 0.0103,
    }
    return MeasurementRow(**(known | values))


def test_repetitions_become_one_cell_of_their_medians() -> None:
    (cell,) = measured_cells([_row(step_time_s=s) for s in (0.03, 0.01, 0.02)])
    assert (cell.run_count, cell.step_time_s) == (3, 0.02)


def test_efficiency_is_against_one_rank_with_the_same_batch_and_hardware() -> None:
    rows = [
        _row(),
        _row(global_batch_size=64, throughput_examples_per_s=1000.0),
        _row(strategy="mwms_ring", world_size=2, throughput_examples_per_s=150.0),
        _row(strategy="mwms_ring", world_size=2, fingerprint="b"),
    ]
    cells = measured_cells(rows)
    assert [(c.values["world_size"], c.fingerprint, c.scaling_efficiency_ratio) for c in cells] == [
        (1, "a", 1.0),
        (2, "a", 0.75),
        (1, "a", 1.0),
        (2, "b", None),
    ]


def test_hardware_of_two_kinds_is_not_pooled() -> None:
    assert len(measured_cells([_row(), _row(fingerprint="b")])) == 2


def test_failed_measurements_are_no_cell() -> None:
    assert measured_cells([_row(status="out_of_memory")]) == []


def _table(*rows: MeasurementRow) -> list[dict[str, str]]:
    columns, lines = table(measured_cells(rows))
    titles = [column.title for column in columns]
    return [dict(zip(titles, map(plain, line), strict=True)) for line in lines]


@pytest.mark.parametrize(
    ("changes", "title", "shown"),
    [
        ({"model": "mlp"}, "model", ["mlp", "small_cnn"]),
        ({"dataset": "mnist"}, "data set", ["digits", "mnist"]),
        ({"training_pass": "forward"}, "pass", ["forward", "forward_backward"]),
        ({"one_way_delay_s": 0.005}, "delay", ["0 s", "5.00 ms"]),
        ({"jitter_s": 0.005}, "jitter", ["0 s", "5.00 ms"]),
        ({"packet_loss_ratio": 0.01}, "packet loss", ["0.00 %", "1.00 %"]),
        ({"bandwidth_bytes_per_s": 125e6}, "bandwidth", ["1 000 Mbit/s", "unlimited"]),
        ({"epochs": 3}, "epochs", ["-", "3"]),
        ({"server_count": 2}, "servers", ["0", "2"]),
        ({"server_count": 1, "server_placement": "apart"}, "servers are", ["-", "apart"]),
        ({"replicas_per_rank": 10}, "replicas per rank", ["1", "10"]),
        ({"steps_between_averages": 8}, "steps between averages", ["1", "8"]),
        ({"placement": "hard"}, "placement", ["hard", "soft"]),
        ({"batch_split": "by_speed"}, "batch split", ["by_speed", "even"]),
        ({"network": "infiniband"}, "network", ["-", "infiniband"]),
        ({"fingerprint": "0123456789"}, "hardware", ["01234567", "a"]),
    ],
)
def test_what_differs_between_cells_gets_a_column(
    changes: dict[str, object], title: str, shown: list[str]
) -> None:
    lines = _table(_row(jitter_s=0.0), _row(**({"jitter_s": 0.0} | changes)))
    assert [line[title] for line in lines] == shown


@pytest.mark.parametrize(
    ("one", "other", "title", "shown"),
    [
        ({"steps": 10}, {"steps": 300}, "steps", ["10", "300"]),
        ({"warmup_step_count": 0}, {}, "warm-up steps", ["0", "5"]),
        ({"repeat": True}, {}, "repeats data", ["true", "false"]),
        ({"time_limit_s": 60.0}, {"time_limit_s": 90.0}, "time limit", ["1 min", "1 min 30 s"]),
        ({"labels": {"zone": "a"}}, {}, "labels", ["zone=a", "-"]),
        ({"emulator": "tc_netem"}, {}, "emulator", ["tc_netem", "-"]),
    ],
)
def test_cells_are_those_of_the_jobs_and_what_tells_jobs_apart_gets_a_column(
    one: dict[str, Any], other: dict[str, Any], title: str, shown: list[str]
) -> None:
    jobs = {
        number: _job(**(changes | {"repetition": number, "seed": number}))
        for number, changes in enumerate((one, other, one, other), start=1)
    }
    cells = measured_cells([_row(job_id=number) for number in jobs], jobs)
    assert [cell.run_count for cell in cells] == [2, 2]
    columns, lines = table(cells)
    at = [column.title for column in columns].index(title)
    assert [plain(line[at]) for line in lines] == shown


def _job(**changes: Any) -> SimpleNamespace:
    values: dict[str, Any] = {
        "model": "small_cnn",
        "dataset": "digits",
        "strategy": "single",
        "world_size": 1,
        "global_batch_size": 32,
        "steps": 10,
    }
    spec = JobSpec(**(values | changes))
    return SimpleNamespace(cell_hash=spec.cell_hash, spec=to_json(spec))


def test_what_all_cells_share_has_no_column() -> None:
    (line,) = _table(_row())
    assert list(line) == [column.title for column in COLUMNS]


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"sent_bytes_per_step": 1040.0}, "+4.0 %"),
        ({"sent_bytes_per_step": None}, MISSING),
        ({"sent_bytes_per_step": 10.0, "training_pass": "forward"}, MISSING),
        ({"sent_bytes_per_step": 10.0, "strategy": "of another version"}, MISSING),
    ],
)
def test_sent_bytes_are_held_against_the_strategys_theory(
    changes: dict[str, object], shown: str
) -> None:
    row = _row(**({"strategy": "mwms_ring", "world_size": 2} | changes))
    cells = measured_cells([row])
    assert table_rows(cells)[0][-1] == shown


def test_cells_that_differ_in_their_set_up_alone_are_not_pooled() -> None:
    rows = [_row(replicas_per_rank=n) for n in (2, 10, 2)] + [_row(replicas_per_rank=None)]
    assert [c.values["replicas_per_rank"] for c in measured_cells(rows)] == [1, 2, 10]


def test_the_kind_of_emulator_is_no_network_of_its_own() -> None:
    assert len(measured_cells([_row(network=name) for name in (None, "none", "tc_netem")])) == 1


def test_what_only_some_strategies_tell_has_a_column_where_it_was_measured() -> None:
    shown = {
        "strategy": "ps_async",
        "world_size": 2,
        "server_count": 1,
        "idle_ratio": 0.25,
        "push_s": 0.002,
        "update_count": 20,
        "staleness_mean": 0.75,
        "staleness_max": 2,
        "received_bytes_per_step": 1040.0,
    }
    (line,) = _table(_row(**shown))
    assert [line[title] for title in ("idle", "push", "updates", "staleness", "received/step")] == [
        *("25 %", "2.00 ms", "20", "0.75 (max 2)", "1.04 kB")
    ]
    assert "pull" not in line


def test_rows_have_a_text_for_every_column_even_with_nothing_measured() -> None:
    measured = {f.name: None for f in dataclasses.fields(MeasuredCell)} | {
        axis.stored: None for axis in AXES
    }
    kept = {"world_size", "global_batch_size", "server_count", "one_way_delay_s", "fingerprint"}
    columns = set(MeasurementRow.__table__.columns.keys()) - kept
    row = _row(**{key: None for key in measured if key in columns})
    (texts,) = table_rows(measured_cells([row]))
    assert len(texts) == len(COLUMNS)
    assert all(texts)


def _runs(*times_s: float) -> list[MeasurementRow]:
    return [_row(step_time_s=time_s, job_id=17 + i) for i, time_s in enumerate(times_s)]


def _shown(*times_s: float, target: Target | None = None) -> dict[str, str]:
    targets = {} if target is None else {17: target}
    columns, (line,) = table(measured_cells(_runs(*times_s), targets=targets))
    return dict(zip([column.title for column in columns], line, strict=True))


def test_three_runs_have_an_interval_and_fewer_say_how_steps_differ_within_one() -> None:
    assert _shown(0.0101, 0.0100, 0.0099)["step time"] == "10.0 ms ± 5.1 %"
    assert _shown(0.01, 0.01)["step time"] == "10.0 ms (2 runs: 9.8 to 10.3)"
    assert _shown(0.01)["step time"] == "10.0 ms (1 run: 9.8 to 10.3)"


def test_a_cell_until_precision_says_how_it_stands_and_has_the_wider_interval() -> None:
    shown = _shown(0.0101, 0.0100, 0.0099, target=Target.RUNNING)
    assert (shown["runs"], shown["step time"]) == ("3 running", "10.0 ms ± 6.7 %")


def test_runs_between_which_others_were_measured_are_known_better() -> None:
    rows = [
        _row(
            id=n,
            job_id=n,
            step_time_s=0.01 + (n % 7 == 0) * (n / 7 - 1) * 1e-4,
            global_batch_size=64 if n % 7 == 0 else 32,
        )
        for n in range(15)
    ]
    _, lines = table(measured_cells(rows))
    assert [line[3:5] for line in lines][1] == ["3", "10.0 ms ± 2.6 %"]


def test_an_outlier_is_marked_and_named_below_the_table() -> None:
    assert _shown(0.01, 0.01, 0.013, 0.01)["runs"] == "4*"
    assert notes(measured_cells(_runs(0.01, 0.01, 0.013, 0.01))) == [
        "±: 95 % interval of the median step time, over the runs",
        "*: runs far from the others, counted all the same: job 19",
        STEP_TIME_NOTE,
    ]
    assert notes(measured_cells(_runs(0.01))) == [
        "in parentheses: the middle half of the steps within a run",
        STEP_TIME_NOTE,
    ]
    assert notes([]) == []


def test_disturbed_runs_are_marked_and_do_not_count_beside_undisturbed_ones() -> None:
    flag = {"kind": "foreign_load", "message": "", "value": 0.8}
    gang = {"strategy": "mwms_ring", "world_size": 2}
    cells = measured_cells(
        [
            _row(step_time_s=0.01),
            _row(step_time_s=0.05, flags=[flag]),
            _row(step_time_s=0.06, flags=[flag]),
            _row(**gang, step_time_s=0.03, flags=[flag]),
        ]
    )
    assert [(cell.step_time_s, cell.run_count) for cell in cells] == [(0.01, 1), (0.03, 1)]
    assert [row[3] for row in table_rows(cells)] == ["1", "1!"]
    assert notes(cells)[-1] == (
        "!: 3 of 4 runs were disturbed, by other programs (3); 2 of them do not count, since "
        "undisturbed runs of the cell do"
    )
    assert not any("disturbed" in line for line in notes(measured_cells([_row()])))


def test_frameworks_are_told_apart() -> None:
    cells = measured_cells([_row(framework="torch"), _row(framework="tensorflow")])
    columns, rows = table(cells)
    assert columns[0].title == "framework"
    assert [row[0] for row in rows] == ["tensorflow", "torch"]
