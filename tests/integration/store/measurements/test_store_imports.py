"""Imported measurements in the store: once each, by origin, and gone when they are removed."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest
import sqlalchemy as sa

from farm.configuration.spec import TrainingPass
from farm.errors import InvalidSpec, NotFound
from farm.measuring.imported import FlagKind, ImportedMeasurement, ImportFlag
from farm.store.engine import reading, writing
from farm.store.measurements.imports import (
    Imported,
    check_origin,
    import_measurements,
    origins,
    preview,
    remove_origin,
    source_of,
)
from farm.store.measurements.measurements import MeasurementFilter, list_measurements
from farm.store.result_tables import MeasurementRow
from tests.factories import NOW, add_job, add_measurement, seconds

OWN = {field.name for field in dataclasses.fields(ImportedMeasurement)}


def imported(key: str, **changes: Any) -> ImportedMeasurement:
    own = {name: changes.pop(name) for name in OWN & set(changes)}
    values = {"world_size": 2, "global_batch_size": 64, "step_time_s": 0.5, **changes}
    return ImportedMeasurement(source_key=key, row_number=2, values=values, **own)


def put(
    engine: sa.Engine,
    *measurements: ImportedMeasurement,
    origin: str = "a study",
    is_replacing: bool = False,
) -> Imported:
    with writing(engine) as session:
        return import_measurements(
            session,
            measurements,
            origin=origin,
            source="table a.csv",
            now=NOW,
            is_replacing=is_replacing,
        )


def stored(engine: sa.Engine, origin: str = "a study") -> dict[str, int]:
    with reading(engine) as session:
        return {
            row.source_key: row.id
            for row in list_measurements(session, MeasurementFilter(origin=origin))
        }


def test_an_imported_measurement_is_stored_with_its_source(engine: sa.Engine) -> None:
    flag = ImportFlag(FlagKind.IMPOSSIBLE, "accuracy: expected less")
    row = imported(
        "k",
        model="their net",
        training_pass=TrainingPass.FORWARD.value,
        one_way_delay_s=0.02,
        flags=(flag,),
        notes=("odd",),
        printed={"accuracy": "2"},
    )
    put(engine, row)
    with reading(engine) as session:
        [found] = list_measurements(session, MeasurementFilter(origin="a study"))
    assert (found.model, found.training_pass, found.one_way_delay_s) == (
        "their net",
        "forward",
        0.02,
    )
    assert (found.step_time_s, found.throughput_examples_per_s, found.status) == (0.5, 128.0, "ok")
    assert (found.job_id, found.created_at, found.accuracy) == (None, NOW, None)
    assert found.flags == [{"kind": "impossible", "message": "accuracy: expected less"}]
    assert found.details == {
        "source": "table a.csv",
        "row": 2,
        "notes": ["odd"],
        "printed": {"accuracy": "2"},
    }


def test_the_same_twice_changes_nothing(engine: sa.Engine) -> None:
    first = put(engine, imported("k"), imported("l"))
    before = stored(engine)
    again = put(engine, imported("k"), imported("l"), imported("m"))
    assert first == Imported(added_count=2, present_count=0)
    assert again == Imported(added_count=1, present_count=2)
    assert before.items() <= stored(engine).items()
    assert len(stored(engine)) == 3


def test_origins_do_not_know_of_each_other(engine: sa.Engine) -> None:
    put(engine, imported("k"), origin="one")
    assert put(engine, imported("k"), origin="two").added_count == 1
    with writing(engine) as session:
        assert remove_origin(session, "one") == 1
    assert (len(stored(engine, "one")), len(stored(engine, "two"))) == (0, 1)


def test_replacing_removes_what_the_source_no_longer_has(engine: sa.Engine) -> None:
    put(engine, imported("k"), imported("l"))
    put(engine, imported("k"), origin="another")
    before = stored(engine)
    done = put(engine, imported("l"), imported("m"), is_replacing=True)
    assert done == Imported(added_count=1, present_count=1, removed_count=1)
    assert set(stored(engine)) == {"l", "m"}
    assert stored(engine)["l"] == before["l"]
    assert set(stored(engine, "another")) == {"k"}


def test_a_preview_says_what_an_import_would_do_and_does_nothing(engine: sa.Engine) -> None:
    put(engine, imported("k"), imported("l"))
    rows = [imported("l"), imported("m")]
    with reading(engine) as session:
        previewed = preview(session, rows, origin="a study", is_replacing=True)
    assert set(stored(engine)) == {"k", "l"}
    assert previewed == put(engine, *rows, is_replacing=True)


def test_nothing_is_imported_by_halves(engine: sa.Engine) -> None:
    rows = [imported("k"), imported("l", status=None)]
    with pytest.raises(sa.exc.IntegrityError):
        put(engine, *rows)
    assert stored(engine) == {}


def test_more_rows_than_a_statement_takes_are_added_and_removed(engine: sa.Engine) -> None:
    rows = [imported(f"k{i}") for i in range(5100)]
    assert put(engine, *rows).added_count == 5100
    assert put(engine, *rows[:1], is_replacing=True).removed_count == 5099
    assert set(stored(engine)) == {"k0"}


def test_two_imports_at_once_store_each_measurement_once(engine: sa.Engine) -> None:
    rows = [imported(f"k{i}") for i in range(200)]
    start = threading.Barrier(3)

    def put_all() -> None:
        start.wait()
        put(engine, *rows)

    threads = [threading.Thread(target=put_all) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with reading(engine) as session:
        count = session.scalar(sa.select(sa.func.count()).select_from(MeasurementRow))
    assert count == 200


@pytest.mark.parametrize("origin", ["farm", "Farm", " farm ", "", "  ", "a\nb", "x" * 65])
def test_no_import_takes_the_farms_own_name_or_none(origin: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^origin: expected"):
        check_origin(origin)


def test_the_farms_own_measurements_cannot_be_removed(engine: sa.Engine) -> None:
    with writing(engine) as session:
        job_id = add_job(session)
        add_measurement(session, f"job {job_id}", job_id=job_id)
        with pytest.raises(InvalidSpec):
            remove_origin(session, "farm")
        with pytest.raises(InvalidSpec):
            import_measurements(session, [], origin="farm", source="s", now=NOW, is_replacing=True)
    assert len(stored(engine, "farm")) == 1


def test_an_origin_that_is_not_there_cannot_be_removed(engine: sa.Engine) -> None:
    with writing(engine) as session, pytest.raises(NotFound, match=r"^origin 'nobody'"):
        remove_origin(session, "nobody")


def test_origins_are_summed_up(engine: sa.Engine) -> None:
    put(engine, imported("k", model="m"), imported("l", model="n", status="out_of_memory"))
    put(engine, imported("k"), origin="a table")
    with writing(engine) as session:
        add_measurement(session, "1", fingerprint="f")
        add_measurement(session, "2", fingerprint="g", created_at=NOW + seconds(5))
        add_measurement(session, "3")
        found = origins(session)
        assert source_of(session, "a study") == "table a.csv"
        assert source_of(session, "nobody") is None
    assert [summary.origin for summary in found] == ["farm", "a study", "a table"]
    farm, study, _ = found
    assert (farm.measurement_count, farm.failed_count, farm.fingerprint_count) == (3, 0, 3)
    assert (farm.first_at, farm.last_at, farm.source) == (NOW, NOW + seconds(5), None)
    assert (study.measurement_count, study.failed_count, study.workload_count) == (2, 1, 2)
    assert (study.fingerprint_count, study.source) == (1, "table a.csv")
