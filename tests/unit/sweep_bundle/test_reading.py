from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from farm.errors import InvalidSpec
from farm.exporting import SAMPLES, Form, write_rows
from farm.sweep_bundle.manifest import FORMAT, SAMPLE_FILE, VERSION, Manifest, files_in
from farm.sweep_bundle.reading import sample_parts

pyarrow = pytest.importorskip("pyarrow", reason="needs the extra server")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra server")

ROW: dict[str, Any] = {
    **dict.fromkeys(SAMPLES),
    **{"job_id": 1, "attempt_id": 2, "rank": 0, "tick": 3, "span_ticks": 1},
    **{"cpu_ratio": 0.5, "resident_bytes": 2**40, "extra": '{"celsius": 40.5}'},
}


def read(folder: Path) -> list[dict[str, Any]]:
    manifest = Manifest(
        format=FORMAT,
        version=VERSION,
        benchfarm_version="0.1.0",
        farm_id=None,
        sweep_id=1,
        sweep_name="x",
        created_at="",
        files=files_in(folder),
    )
    return [row for rows in sample_parts(folder, manifest) for row in rows]


def write(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    with (folder / SAMPLE_FILE).open("wb") as file:
        write_rows(SAMPLES, [rows], Form.PARQUET, file)


def test_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read(tmp_path) == []
    write(tmp_path, [ROW, {**ROW, "tick": 4, "extra": None}])
    first = {**ROW, "extra": {"celsius": 40.5}}
    assert read(tmp_path) == [first, {**first, "tick": 4, "extra": None}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cpu_ratio": float("nan")}, "samples.parquet, row 2.cpu_ratio: expected"),
        ({"cpu_ratio": float("inf")}, "cpu_ratio: expected"),
        ({"machine_cpu_ratio": -0.1}, "machine_cpu_ratio: expected"),
        ({"resident_bytes": -1}, "resident_bytes: expected"),
        ({"tick": None}, "tick: expected"),
        ({"tick": -1}, "tick: expected"),
        ({"rank": 2**40}, "rank: expected"),
        ({"attempt_id": 0}, "attempt_id: expected"),
        ({"span_ticks": None}, "span_ticks: expected"),
        ({"extra": "[" * 100_000}, "extra: expected JSON"),
        ({"extra": "[1]"}, "extra: expected"),
        ({"extra": '{"celsius": NaN}'}, "extra.celsius: expected"),
    ],
)
def test_a_sample_that_cannot_be_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    write(tmp_path, [ROW, {**ROW, **change}])
    refuse(tmp_path, message)


def refuse(folder: Path, message: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        read(folder)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_no_table_of_samples_is_refused(tmp_path: Path) -> None:
    file = tmp_path / SAMPLE_FILE
    file.write_bytes(b"PAR1 is not enough")
    refuse(tmp_path, "expected a table in Parquet")
    write(tmp_path, [ROW])
    file.write_bytes(file.read_bytes()[:-9])
    refuse(tmp_path, "expected a table in Parquet")
    parquet.write_table(pyarrow.table({"job_id": ["1"]}), file)
    refuse(tmp_path, "expected the columns and types of an export of samples")


def test_a_small_file_that_unpacks_to_very_much_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [ROW])
    table = parquet.read_table(tmp_path / SAMPLE_FILE)
    texts = pyarrow.array(["x" * (1 << 20) + str(i) for i in range(300)])
    columns = {name: pyarrow.nulls(300, table.schema.field(name).type) for name in SAMPLES}
    bomb = pyarrow.table({**columns, "extra": texts}, schema=table.schema)
    parquet.write_table(bomb, tmp_path / SAMPLE_FILE, compression="zstd", use_dictionary=False)
    assert (tmp_path / SAMPLE_FILE).stat().st_size < 1 << 20
    refuse(tmp_path, "at most 268435456 in a group")
