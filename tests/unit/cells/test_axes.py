"""What cells differ in, with the parameters of users' scripts among it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.cells.axes import axes_of, places_of
from farm.cells.configuration import CellConfiguration, configuration_of
from farm.configuration.scripts import as_axes
from farm.configuration.spec import JobSpec
from farm.values.codec import to_json
from tests import factories

_ARGS = ["--lr", "{lr}", "--hidden", "{hidden}"]


def cells(parameters: dict[str, list[object]]) -> list[CellConfiguration]:
    case = {"script": "train.py", "args": _ARGS, "parameters": parameters}
    read = as_axes(case, [], others=[], where="")
    models = read["model"]
    assert isinstance(models, list)
    specs = [factories.job_spec(**{**read, "model": model}) for model in models]
    return [_configuration(spec) for spec in specs]


def _configuration(spec: JobSpec) -> CellConfiguration:
    written = to_json(spec)
    assert isinstance(written, dict)
    return configuration_of(written)


def test_parameters_are_axes_and_the_model_is_the_command_without_them() -> None:
    found = cells({"lr": ["1e-3", 0.1], "hidden": [256, 1024]})
    axes, places, _ = places_of(found)
    assert [axis.name for axis in axes] == ["parameter.lr", "parameter.hidden"]
    assert all(axis.is_number for axis in axes)
    assert places == [(0.001, 256), (0.001, 1024), (0.1, 256), (0.1, 1024)]
    [model] = (axis for axis in axes_of(found) if axis.name == "model")
    assert {model.value_of(one) for one in found} == {"script:train.py --lr {lr} --hidden {hidden}"}
    assert axes[1].named(1024.0) == "hidden 1024"


def test_cells_without_a_parameter_have_no_value_of_it() -> None:
    other = _configuration(factories.job_spec())
    _, places, values = places_of([*cells({"lr": ["a", 1], "hidden": [256]}), other])
    assert values["parameter.hidden"] == [None, 256.0]
    assert values["parameter.lr"] == [None, "1", "a"]
    assert values["model"] == ["mlp", "script:train.py --lr {lr} --hidden {hidden}"]
    assert len(set(places)) == 3


@pytest.mark.parametrize(
    "listed",
    [
        ["1e-3", "0.001"],
        ["nan", "inf"],
        [12345678901, 12345678902],
        ["1", "auto"],
    ],
    ids=str,
)
def test_what_a_number_would_not_tell_apart_stays_text(listed: list[object]) -> None:
    [axis], _, values = places_of(cells({"lr": listed, "hidden": [1]}))
    assert not axis.is_number
    assert sorted(map(str, listed)) == values[axis.name]


_VALUES = st.one_of(
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(alphabet="abc-=' \"\\$", min_size=1, max_size=6),
)


@given(st.lists(_VALUES, min_size=1, max_size=4), st.lists(_VALUES, min_size=1, max_size=3))
def test_each_command_has_a_place_of_its_own(lr: list[object], hidden: list[object]) -> None:
    found = cells({"lr": lr, "hidden": hidden})
    axes, places, values = places_of(found)
    assert len(set(places)) == len(found)
    for axis in axes:
        assert len({axis.address(value) for value in values[axis.name]}) == len(values[axis.name])
    assert "model" not in values
