"""Samples of other farms, stored while this one goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from farm.importing import import_samples
from farm.store.engine import reading, writing
from farm.store.result_tables import ImportedSampleRow
from tests.factories import add_measurement

_Part = Sequence[Mapping[str, Any]]
PARTS = [
    [{"job_id": 1, "attempt_id": 1, "rank": rank, "tick": tick, "span_ticks": 1} for tick in (1, 2)]
    for rank in range(3)
]


def ranks(engine: sa.Engine) -> list[int]:
    with reading(engine) as session:
        found = session.scalars(sa.select(ImportedSampleRow.__table__.c.rank))
        return sorted(found)


def test_others_write_while_samples_are_read(engine: sa.Engine) -> None:
    def parts() -> Iterator[_Part]:
        for number, part in enumerate(PARTS):
            with writing(engine) as session:
                add_measurement(session, f"of a collector {number}")
            yield part

    import_samples(engine, "another", parts())
    assert ranks(engine) == [0, 0, 1, 1, 2, 2]


def test_an_import_that_was_interrupted_goes_on(engine: sa.Engine) -> None:
    def cut() -> Iterator[_Part]:
        yield PARTS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_samples(engine, "another", cut())
    assert ranks(engine) == [0, 0]
    import_samples(engine, "another", PARTS)
    assert ranks(engine) == [0, 0, 1, 1, 2, 2]
    import_samples(engine, "another", PARTS[1:], is_replacing=True)
    assert ranks(engine) == [1, 1, 2, 2]
