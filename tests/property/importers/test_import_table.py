"""What `farm export` writes `farm import table` reads, whatever was measured."""

from __future__ import annotations

import csv
import datetime as dt
import io
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from farm.errors import InvalidSpec
from farm.exporting import MEASUREMENTS
from farm.importers.headers import CONVERTED, Conversion, column_of, hint_of, normal_form
from farm.importers.table import COLUMNS, read_table
from farm.importing import import_reading, of_table
from farm.measuring.imported import ImportedMeasurement
from farm.store.base import Table
from farm.store.measurements.export_parts import export_parts
from farm.store.result_tables import MeasurementRow
from farm.store.tables import JobRow
from farm.values.fields import canonical
from tests.factories import add_measurement, add_sweep, job_spec

name = st.text(
    st.characters(categories=["L", "N", "P", "S"], include_characters=" "), min_size=1, max_size=20
).filter(lambda text: text == text.strip())
seconds = st.floats(1e-6, 1e4)


@st.composite
def measured(draw: st.DrawFn) -> dict[str, Any]:
    """Columns of a measurement of our own, as a job leaves them."""
    world_size = draw(st.integers(1, 64))
    values: dict[str, Any] = {
        "training_pass": draw(st.sampled_from(["forward", "forward_backward"])),
        "world_size": world_size,
        "server_count": draw(st.integers(0, 4)),
        "global_batch_size": draw(st.integers(world_size, 10**6)),
        "one_way_delay_s": canonical(draw(st.integers(0, 10**6)) / 100 / 1000),
        "packet_loss_ratio": canonical(draw(st.integers(0, 9999)) / 100 / 100),
        "bandwidth_bytes_per_s": draw(
            st.none() | st.floats(1e-3, 1e6).map(lambda m: canonical(m * 125_000))
        ),
        "repetition": draw(st.integers(0, 99)),
        "fingerprint": draw(st.none() | st.text("0123456789abcdef", min_size=64, max_size=64)),
    }
    for column in ("model", "dataset", "framework", "strategy", "network", "instance_type"):
        values[column] = draw(st.none() | name)
    if draw(st.booleans()):
        return {**values, "status": "out_of_memory", "step_time_s": None}
    step_time_s = draw(seconds)
    steps_per_epoch = draw(st.integers(1, 10**4))
    return {
        **values,
        "step_time_s": step_time_s,
        "step_time_spread_s": draw(st.none() | st.floats(0, 10)),
        "steps_per_epoch": steps_per_epoch,
        "time_per_epoch_s": step_time_s * steps_per_epoch * draw(st.floats(1, 2)),
        "epochs": draw(st.none() | st.integers(1, 100)),
        "accuracy": draw(st.none() | st.floats(0, 1)),
    }


@pytest.fixture(scope="module")
def engine() -> Iterator[sa.Engine]:
    engine = sa.create_engine("sqlite://")
    Table.metadata.create_all(engine)
    yield engine
    engine.dispose()


def exported(engine: sa.Engine, rows: list[dict[str, Any]]) -> list[dict[str, object]]:
    """What is exported of a sweep that measured this; nothing of it stays in the store."""
    with Session(engine) as session:
        job_ids = add_sweep(session, *(job_spec() for _ in rows))
        for job_id, values in zip(job_ids, rows, strict=True):
            add_measurement(session, f"job {job_id}", job_id=job_id, **values)
        parts = export_parts(session, session.get_one(JobRow, job_ids[0]).sweep_id)
        return [row for part in parts for row in part]


def as_csv(rows: list[dict[str, object]], columns: tuple[str, ...] = tuple(MEASUREMENTS)) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


@settings(max_examples=25)
@given(rows=st.lists(measured(), min_size=1, max_size=5))
def test_an_export_can_be_imported_and_says_the_same(
    engine: sa.Engine, rows: list[dict[str, Any]]
) -> None:
    read = read_table(as_csv(exported(engine, rows))).measurements
    assert len(read) == len(rows)
    for measurement, values in zip(read, rows, strict=True):
        for column, value in values.items():
            is_own = hasattr(measurement, column)
            found = getattr(measurement, column) if is_own else measurement[column]
            if column == "bandwidth_bytes_per_s" and value is not None:
                assert found == pytest.approx(value, rel=1e-11)
            else:
                assert found == value, column


@settings(max_examples=25)
@given(rows=st.lists(measured(), min_size=1, max_size=6), chance=st.randoms(use_true_random=False))
def test_a_table_in_another_order_is_the_same_table(
    engine: sa.Engine, rows: list[dict[str, Any]], chance: random.Random
) -> None:
    table = exported(engine, rows)
    columns = list(MEASUREMENTS)
    there = read_table(as_csv(table)).measurements
    chance.shuffle(table)
    chance.shuffle(columns)
    back = read_table(as_csv(table, tuple(columns))).measurements
    assert sorted(m.source_key for m in there) == sorted(m.source_key for m in back)


cell = st.text(max_size=8) | st.sampled_from(["1", "2.5", "-1", "1e400", "nan", "ok", '"', ""])


def read_or_refused(content: bytes) -> tuple[ImportedMeasurement, ...]:
    """What is refused gives no measurement; any other error is a failure."""
    message = ""
    try:
        return read_table(content).measurements
    except InvalidSpec as refused:
        message = str(refused)
    assert "\n" not in message
    return ()


@given(st.lists(st.lists(cell, min_size=3, max_size=3), max_size=5))
def test_any_cells_are_taken_as_possible_or_refused(rows: list[list[str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([["world_size", "global_batch_size", "step_time_s"], *rows])
    for m in read_or_refused(text.getvalue().encode(errors="surrogatepass")):
        assert 1 <= m["world_size"] <= m["global_batch_size"]
        assert m["step_time_s"] is not None
        assert 0 < m["step_time_s"] < math.inf


HEADER = b"world_size,global_batch_size,step_time_s\n"


@given(st.binary(max_size=200), st.sampled_from([b"", HEADER, ",".join(COLUMNS).encode() + b"\n"]))
@example(b"", b"")
@example(b"\xef\xbb\xbf" + HEADER + b"1,32,0.1\r", b"")
@example((HEADER + b"1,32,0.1\n").decode().encode("utf-16"), b"")
@example(b"PK\x03\x04", b"")
@example(b"world_size,world_size\n1,2\n", b"")
@example(b'1,32,"0.1', HEADER)
@example(b"1,32," + b"9" * 5000, HEADER)
@example(b"1,32," + b"x" * 200_000, HEADER)
@example(b"1,32,0.1\x00", HEADER)
@example(b"\xd9\xa1,32,0.1", HEADER)
@example(b"1_0,32,0.1", HEADER)
@example(b",,,,,,\n" * 50, HEADER)
def test_any_bytes_are_a_table_or_refused(content: bytes, header: bytes) -> None:
    read_or_refused(header + content)


@settings(max_examples=50)
@given(
    st.lists(st.sampled_from([b"1,32,0.1", b"2,32,0.2"]) | st.binary(max_size=9), max_size=5).map(
        b"\n".join
    )
)
@example(b"1,32,0.1\n1,32,-1")
@example(b"1,32,0.1\n1,32,0.1")
def test_of_any_table_all_is_in_the_store_or_nothing(engine: sa.Engine, content: bytes) -> None:
    source = of_table("a table", origin="elsewhere")
    with Session(engine) as session:
        try:
            reading = read_table(HEADER + content)
            import_reading(session, reading, source, now=dt.datetime.now(dt.UTC))
            there = {m.source_key for m in reading.measurements}
        except InvalidSpec:
            there = set()
        rows = session.scalars(sa.select(MeasurementRow.source_key)).all()
        assert len(rows) == len(there)
        assert set(rows) == there


@pytest.mark.parametrize(
    "write",
    [str.upper, str.title, lambda n: n.replace("_", " "), lambda n: f' "{n}"\t', str],
    ids=["upper", "title", "spaces", "quoted", "plain"],
)
def test_every_converted_column_is_known_however_it_is_written(write: Callable[[str], str]) -> None:
    for name, conversion in CONVERTED.items():
        expected = name if name in COLUMNS else conversion
        assert column_of(write(name), COLUMNS) == expected
        assert conversion.target in COLUMNS


def test_a_column_of_the_table_that_is_converted_says_the_same_in_its_own_unit() -> None:
    for name in COLUMNS.keys() & CONVERTED.keys():
        conversion = CONVERTED[name]
        assert conversion.factor == 1
        # A throughput is a column of its own, and beside no step time says how long one takes.
        assert conversion.target == name or name == "throughput_examples_per_s"


@given(st.text(max_size=30) | st.sampled_from(sorted({*CONVERTED, *COLUMNS})).map(lambda n: n[1:]))
@example(header="in:")
@example(header="in (s)")
def test_any_header_is_a_column_or_gets_a_hint_of_one_line_or_none(header: str) -> None:
    found = column_of(header, COLUMNS)
    if isinstance(found, Conversion):
        assert "\n" not in found.statement("x")
    hint = hint_of(header, tuple(COLUMNS))
    assert hint is None or hint.isprintable()
    assert normal_form(normal_form(header)) == normal_form(header)


@given(
    seconds=st.integers(1, 10**9).map(lambda n: n / 1000),
    batch=st.integers(2, 10**5),
)
def test_a_time_and_its_throughput_are_one_measurement(seconds: float, batch: int) -> None:
    def read_one(column: str, value: object) -> ImportedMeasurement:
        text = f"world_size,global_batch_size,{column}\n2,{batch},{value}\n"
        [measurement] = read_table(text.encode()).measurements
        return measurement

    plain = read_one("step_time_s", repr(seconds))
    assert read_one("step_time_ms", f"{seconds:.3f}".replace(".", "").lstrip("0")) == plain
    rate = read_one("images_per_s", repr(batch / seconds))["step_time_s"]
    assert rate == pytest.approx(seconds, rel=1e-12)
