"""Tables against the declarations of axes, quantities and samples, and what they say of writers."""

from typing import Any

import pytest
import sqlalchemy as sa

from farm.configuration.axes import AXES, REQUIRED_AXES
from farm.configuration.axis import Axis
from farm.measuring.quantities import QUANTITIES, Quantity
from farm.measuring.sampled_metrics import SAMPLED
from farm.store.base import Table, axis_type
from farm.store.result_tables import MeasurementRow, SampleRow
from farm.store.tables import JobRow
from farm.values.fields import Amount, WholeNumber

COLUMNS = MeasurementRow.__table__.columns
NOT_DECLARED = {
    # which measurement it is, and whose
    *("id", "origin", "source_key", "job_id", "attempt_id", "created_at", "status", "repetition"),
    # what it ran on and with
    *("framework", "instance_type", "fingerprint", "parameter_count", "gradient_bytes"),
    # how much it can be trusted
    *("step_time_low_s", "step_time_high_s", "outlier_step_count", "control_ratio", "flags"),
    # the network as it was measured before
    *("rtt_s", "measured_bandwidth_bytes_per_s", "loaded_rtt_s"),
    "details",
}
MOST = {"INTEGER": 2**31 - 1, "BIGINT": 2**63 - 1}
FLOATS = {"FLOAT", "DOUBLE"}


def stored_as(column: sa.ColumnElement[Any]) -> str:
    return column.type.compile()


@pytest.mark.parametrize("axis", [one for one in AXES if one.has_column], ids=lambda one: one.name)
def test_an_axis_has_a_column_of_its_type(axis: Axis) -> None:
    kind = stored_as(COLUMNS[axis.stored])
    if isinstance(axis.type, WholeNumber):
        assert axis.type.high <= MOST[kind]
    elif isinstance(axis.type, Amount):
        assert kind in FLOATS
    else:
        assert kind == "TEXT" or kind.startswith("VARCHAR")


@pytest.mark.parametrize("axis", REQUIRED_AXES, ids=lambda one: one.name)
def test_jobs_have_a_column_of_each_required_axis(axis: Axis) -> None:
    column = JobRow.__table__.columns[axis.field]
    assert stored_as(column) == axis_type(axis).compile()
    assert not column.nullable


@pytest.mark.parametrize(
    "quantity", [one for one in QUANTITIES if one.stored_as], ids=lambda one: one.name
)
def test_the_column_of_a_quantity_has_its_type(quantity: Quantity) -> None:
    column = COLUMNS[quantity.name]
    assert column.nullable  # any of them may not be known
    if quantity.is_whole:
        assert (quantity.most or 0) <= MOST[stored_as(column)]
    else:
        assert stored_as(column) in FLOATS


def test_measurements_have_no_other_columns() -> None:
    declared = {
        *(axis.stored for axis in AXES if axis.has_column),
        *(quantity.name for quantity in QUANTITIES),
    }
    assert set(COLUMNS.keys()) - declared == NOT_DECLARED
    assert not declared & NOT_DECLARED


def test_what_charts_show_is_sampled() -> None:
    stored = {metric.name for metric in SAMPLED if metric.is_stored}
    assert stored <= set(SampleRow.__table__.columns.keys())


def test_each_table_says_who_writes_it() -> None:
    tables = [mapper.class_ for mapper in Table.registry.mappers]
    assert len(tables) > 20
    assert [one.__name__ for one in tables if "Written " not in (one.__doc__ or "")] == []
