"""Reads the samples of a bundle in parts; each value is checked as an agent's report is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from farm.errors import FarmError, InvalidSpec
from farm.exporting import SAMPLES, parquet_schema
from farm.messages.reports import Sample
from farm.sweep_bundle.manifest import SAMPLE_FILE, Manifest, opened
from farm.values.codec import from_json, parsed, to_json
from farm.values.ranges import Range

MOST_SAMPLES = 50_000_000
_PART_ROWS = 5000
# A part is read from a group of rows as a whole, and a few bytes may unpack to very many.
_GROUP_BYTES = 256 << 20
_Id = Annotated[int, Range(1, 2**63 - 1)]
_OF_SAMPLE = tuple(name for name in SAMPLES if name in Sample.__dataclass_fields__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SamplePlace:
    job_id: _Id
    attempt_id: _Id
    rank: Annotated[int, Range(0, 2**31 - 1)]
    span_ticks: Annotated[int, Range(1, 2**31 - 1)]


def sample_parts(
    folder: Path, manifest: Manifest, *, most: int = MOST_SAMPLES
) -> Iterator[list[dict[str, Any]]]:
    """Yield the samples as rows by the columns of SAMPLES; none where the bundle has no such file.

    Raises:
        InvalidSpec: it is no such table, too large, or has a value that cannot be.
        FarmError: Parquet needs a library that is not installed.
    """
    if SAMPLE_FILE not in manifest.files:
        return
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise FarmError("samples need pyarrow: pip install pyarrow") from None
    number = 0
    with opened(folder, SAMPLE_FILE) as file:
        try:
            table = parquet.ParquetFile(file)
            _check(table, most=most)
            for batch in table.iter_batches(batch_size=_PART_ROWS):
                rows = batch.to_pylist()
                yield [
                    _row(row, f"{SAMPLE_FILE}, row {number + i}") for i, row in enumerate(rows, 1)
                ]
                number += len(rows)
                if number > most:  # whatever its metadata say
                    raise InvalidSpec(SAMPLE_FILE, f"{number} rows", f"at most {most}")
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            told = str(error).partition("\n")[0]
            raise InvalidSpec(SAMPLE_FILE, told, "a table in Parquet") from None


def _check(table: Any, *, most: int) -> None:
    if not table.schema_arrow.equals(parquet_schema(SAMPLES)):
        names = table.schema_arrow.names[: len(SAMPLES) + 1]
        raise InvalidSpec(SAMPLE_FILE, names, "the columns and types of an export of samples")
    if table.metadata.num_rows > most:
        raise InvalidSpec(SAMPLE_FILE, f"{table.metadata.num_rows} rows", f"at most {most}")
    for i in range(table.metadata.num_row_groups):
        size = table.metadata.row_group(i).total_byte_size
        if size > _GROUP_BYTES:
            raise InvalidSpec(SAMPLE_FILE, f"{size} bytes", f"at most {_GROUP_BYTES} in a group")


def _row(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    place = {name: row[name] for name in _SamplePlace.__dataclass_fields__}
    known = {name: row[name] for name in _OF_SAMPLE}
    known["extra"] = {} if row["extra"] is None else parsed(row["extra"], where=f"{where}.extra")
    sample = from_json(Sample, known, where=where)
    values = {name: getattr(sample, name) for name in _OF_SAMPLE}
    checked = to_json(from_json(_SamplePlace, place, where=where))
    assert isinstance(checked, dict)
    return {**checked, **values, "extra": sample.extra or None}
