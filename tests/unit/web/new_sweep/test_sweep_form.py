import tomllib
from typing import Any

import pytest
from werkzeug.datastructures import MultiDict

from farm.configuration.axes import AXES
from farm.configuration.expansion import Expansion
from farm.configuration.scripts import SET_BY_SCRIPT
from farm.configuration.sweep import parse_sweep
from farm.errors import InvalidSpec
from farm.registry import catalogue
from farm.submission import plan
from farm.text.toml_text import document_text, key_text, value_text
from web.new_sweep.form import (
    LISTS,
    MAX_CHARACTERS,
    TICKED,
    Fields,
    beyond,
    fields_of,
    first_fields,
    read_fields,
    refused_field,
    sweep_of,
)

FIELDS: dict[str, tuple[str, ...]] = {
    "name": ("a sweep",),
    "model": ("mlp",),
    "dataset": ("digits",),
    "strategy": ("single", "mwms_ring"),
    "world_size": ("1, 2",),
    "global_batch_size": ("64",),
}

SCRIPT = {
    "script": "train.py",
    "args": ["--batch", "{per_rank_batch_size}", "--hidden", "{hidden}", "{flag}", "a b"],
    "parameters": {"hidden": [256, 1024], "flag": True},
}


def sweep(**changed: str | tuple[str, ...]) -> dict[str, Any]:
    """The sweep of a form in which some fields are changed; an empty text empties one."""
    values = {k: v if isinstance(v, tuple) else (v,) for k, v in changed.items()}
    return sweep_of(read_fields(MultiDict({**FIELDS, **values})))


def case(**changed: str | tuple[str, ...]) -> dict[str, Any]:
    [only] = sweep(**changed)["case"]
    assert isinstance(only, dict)
    return only


def expanded(fields: Fields) -> Expansion:
    return plan(tomllib.loads(document_text(sweep_of(fields)))).expansion


def test_several_values_are_a_list_and_one_is_itself() -> None:
    assert case() == {
        "model": "mlp",
        "dataset": "digits",
        "strategy": ["single", "mwms_ring"],
        "world_size": [1, 2],
        "global_batch_size": 64,
    }


@pytest.mark.parametrize("text", ["1,2,4", "1 2 4", " 1, 2;4 ", "1,,2,\n4"])
def test_numbers_of_a_list_stand_between_commas_or_spaces(text: str) -> None:
    assert case(world_size=text)["world_size"] == [1, 2, 4]


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("one_way_delay_ms", "0, 0.5, 20", [0, 0.5, 20]),
        ("bandwidth_mbit_per_s", "1e2", 100.0),
        ("jitter_ms", ".5", 0.5),
        ("packet_loss_percent", "1.", 1.0),
        ("server_count", "0 1", [0, 1]),
        ("steps", "50", 50),
        ("epochs", "3", 3),
        ("warmup_steps", "0", 0),
        ("seed", "7", 7),
        ("time_limit_s", "90.5", 90.5),
        ("emulator", "tcp_proxy", "tcp_proxy"),
        ("labels", "zone = a, kind=rare", {"zone": "a", "kind": "rare"}),
        ("replicas_per_rank", "2, 4", [2, 4]),
        ("steps_between_averages", "8", 8),
        ("server_placement", ("collocated", "apart"), ["collocated", "apart"]),
        ("placement", ("hard",), "hard"),
        ("batch_split", ("even", "by_speed"), ["even", "by_speed"]),
        ("network", "ethernet, 10", ["ethernet", "10"]),
        ("pass", ("forward", "forward_backward"), ["forward", "forward_backward"]),
    ],
)
def test_a_field_becomes_its_key_of_the_case(
    field: str, text: str | tuple[str, ...], value: object
) -> None:
    assert case(**{field: text})[field] == value
    assert field not in case(**{field: ""})


def test_what_cannot_run_is_left_out_and_not_refused() -> None:
    assert sweep()["skip_impossible"] is True
    found = plan(sweep()).expansion
    assert len(found.jobs) == 2
    assert len(found.impossible) == 2


def test_repetitions_are_counted_or_go_on_until_precise_and_never_both() -> None:
    numbers = {"repetitions": "4", "precision_percent": "1", "max_repetitions": "20"}
    assert sweep(**numbers)["repetitions"] == 4
    assert "max_repetitions" not in sweep(**numbers)
    precise = sweep(repetitions_by="auto", **numbers)
    assert {key: precise.get(key) for key in ("repetitions", "precision_percent")} == {
        "repetitions": "auto",
        "precision_percent": 1,
    }
    assert parse_sweep(precise).precision is not None


def test_priority_and_repeat_belong_to_the_sweep() -> None:
    found = sweep(priority="-3", repeat="yes")
    assert (found["priority"], found["repeat"]) == (-3, True)
    assert "repeat" not in sweep()


@pytest.mark.parametrize(
    ("field", "text", "refused"),
    [
        ("name", "", "name"),
        ("name", "a\x00b", "name"),
        ("model", "", "model"),
        ("world_size", "", "world_size"),
        ("world_size", "two", "world_size"),
        ("world_size", "1, 0", "world_size"),
        ("world_size", "1.5", "world_size"),
        ("world_size", "٣", "world_size"),
        ("world_size", "1_0", "world_size"),
        ("global_batch_size", "-64", "global_batch_size"),
        ("global_batch_size", "9" * 30, "global_batch_size"),
        ("global_batch_size", "1 " * MAX_CHARACTERS, "global_batch_size"),
        ("one_way_delay_ms", "inf", "one_way_delay_ms"),
        ("one_way_delay_ms", "1e999", "one_way_delay_ms"),
        ("bandwidth_mbit_per_s", "0", "bandwidth_mbit_per_s"),
        ("repetitions", "many", "repetitions"),
        ("steps", "1 2", "steps"),
        ("labels", "zone", "labels"),
        ("labels", "zone=a, zone=b", "labels"),
        ("pass", "sideways", "pass"),
        ("emulator", "magic", "emulator"),
        ("priority", "1001", "priority"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_field(field: str, text: str, refused: str) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        plan(sweep(**{field: text}))
    name, message = refused_field(refusal.value)
    assert name == refused
    assert str(message).startswith(f"{refused}: expected ")
    assert "\n" not in str(message)


def test_where_nothing_can_run_the_first_reason_is_told() -> None:
    with pytest.raises(InvalidSpec, match=r"a cell that can run.*model: expected one of"):
        plan(sweep(model="vgg"))


def test_steps_beside_epochs_are_refused_at_the_epochs() -> None:
    with pytest.raises(InvalidSpec) as refusal:
        plan(sweep(steps="5", epochs="2"))
    assert refused_field(refusal.value)[0] == "epochs"


def test_an_error_of_no_single_field_stays_as_it_is() -> None:
    error = InvalidSpec("sweep", 10**9, "at most 100000 jobs in one sweep")
    assert refused_field(error) == (None, error)
    assert refused_field(InvalidSpec("case[3].labels.zone", 1, "a text"))[0] == "labels"


@pytest.mark.parametrize("agent_count", [0, 1, 2, 3, 8, 100])
def test_what_the_form_shows_first_runs_as_it_is(agent_count: int) -> None:
    found = expanded(first_fields(catalogue(), agent_count=agent_count))
    assert {job.world_size for job in found.jobs} >= {1}
    assert max(job.world_size for job in found.jobs) <= max(2, agent_count)
    if agent_count == 1:
        assert {job.world_size for job in found.jobs} == {1}
        assert found.impossible == ()
    else:
        assert {job.strategy for job in found.jobs} == {"single", "mwms_ring"}


@pytest.mark.parametrize("given", [FIELDS, first_fields(catalogue(), agent_count=4).values])
def test_the_file_of_a_form_fills_the_form_again(given: dict[str, tuple[str, ...]]) -> None:
    fields = Fields({"repetitions_by": ("count",), **given})
    assert fields_of(tomllib.loads(document_text(sweep_of(fields)))) == fields


@pytest.mark.parametrize(
    "changed",
    [
        {"repetitions": "auto", "precision_percent": 1.5, "min_repetitions": 4},
        {"repetitions": 3, "priority": -5, "repeat": True, "skip_impossible": False},
        {"case": {"one_way_delay_ms": [0, 0.5, 1e-5], "bandwidth_mbit_per_s": 100.0}},
        {"case": {"labels": {"zone": "a", "kind": "b c"}, "epochs": 2, "seed": 3}},
        {"case": {"pass": "forward", "emulator": "tcp_proxy", "time_limit_s": 1.5}},
        {"case": {"world_size": [1, 2, 4], "model": ["mlp", "of another farm"]}},
        {"case": SCRIPT},
        {"case": {**SCRIPT, "steps": "all", "bundle_sha256": "0" * 64, "python": "hf"}},
        {"case": {**SCRIPT, "launcher": "none", "environment": {"A": "1 2", "B": 3, "C": ""}}},
        {"case": {**SCRIPT, "script_sha256": "0" * 64, "examples_per_epoch": 50000}},
    ],
)
def test_a_file_with_one_case_fills_the_form_with_the_same_sweep(changed: dict[str, Any]) -> None:
    own = changed.get("case", {})
    left_out = SET_BY_SCRIPT if "script" in own else ()
    given = {name: value for name, value in case().items() if name not in left_out}
    data = {"name": "n", **changed, "case": [{**given, **own}]}
    fields = fields_of(data)
    assert fields is not None
    again = sweep_of(fields)
    assert parse_sweep({**again, "skip_impossible": False}) == parse_sweep(
        {**data, "skip_impossible": False}
    )


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"name": "n"},
        {"name": "n", "case": []},
        {"name": "n", "case": [{}, {}]},
        {"name": "n", "case": ["x"]},
        {"name": "n", "case": [{"model": "mlp"}], "colour": "red"},
        {"name": "n", "case": [{"repetitions_by": "auto"}]},
        {"name": "n", "case": [{"name": "twice"}]},
        {"name": "n", "case": [{"model": 3}]},
        {"name": "n", "case": [{"model": " mlp "}]},
        {"name": "n", "case": [{"world_size": "two"}]},
        {"name": "n", "case": [{"world_size": [1, True]}]},
        {"name": "n", "case": [{"world_size": list(range(1, 2000))}]},
        {"name": "n", "case": [{"one_way_delay_ms": float("nan")}]},
        {"name": "n", "case": [{"labels": {"zone": "a, b=c"}}]},
        {"name": "n", "case": [{"labels": {"zone": 3}}]},
        {"name": "n", "case": [{"labels": ["zone"]}]},
        {"name": "a\nb", "case": [{}]},
        {"name": "n", "case": [{}], "repeat": "yes"},
        {"name": 5, "case": [{}]},
    ],
)
def test_what_the_form_cannot_hold_is_left_to_the_file(data: object) -> None:
    assert fields_of(data) is None


def test_world_sizes_beyond_the_live_agents_are_found() -> None:
    assert beyond("1, 2; 8 4 8", "", 3) == [4, 8]
    assert beyond("1, 2", "1", 2) == []
    assert beyond("two, 1.5, ", "", 0) == []
    assert beyond("1", "0, x", 0) == [1]


def test_a_world_size_needs_fewer_agents_with_several_ranks_on_each() -> None:
    assert beyond("4, 8, 16", "4", 2) == [16]
    assert beyond("4, 8", "4, 2", 2) == [8]


@pytest.mark.parametrize(
    "value",
    [
        *("", "plain", 'with "quotes"', "back\\slash", "line\nbreak", "\x7f\x00\x1f", "ünïcödé ‮"),
        *(True, False, 0, -5, 1.5, 1e-5, 1e300, 2.0**60, float("inf")),
        *([], [1, 2], ["a", "b"], {}, {"a b": "c", "": "d", "é": "f"}),
    ],
)
def test_a_value_is_written_so_that_toml_reads_it_back(value: object) -> None:
    assert tomllib.loads(f"x = {value_text(value)}\n") == {"x": value}


@pytest.mark.parametrize("key", ["plain", "a-b_c", "a b", "", "a.b", 'a"b', "é"])
def test_a_key_is_written_so_that_toml_reads_it_back(key: str) -> None:
    assert tomllib.loads(f"{key_text(key)} = 1\n") == {key: 1}


def test_a_number_without_a_fraction_is_written_without_one() -> None:
    assert value_text([20.0, 0.5]) == "[20, 0.5]"


def test_every_axis_of_a_sweep_file_has_a_field_that_gives_it_back() -> None:
    assert {axis.name for axis in AXES} == {*TICKED, *LISTS}
    values = {
        "model": "mlp",
        "dataset": "digits",
        "strategy": ["local_sgd", "ps_async"],
        "world_size": 2,
        "global_batch_size": 64,
        "server_count": [1, 2],
        "server_placement": "apart",
        "replicas_per_rank": 4,
        "steps_between_averages": [1, 16],
        "placement": "hard",
        "batch_split": "by_speed",
        "network": ["ethernet", "infiniband"],
        "pass": "forward",
        "jitter_ms": 0,
    }
    found = fields_of({"name": "all", "skip_impossible": True, "case": [values]})
    assert found is not None
    assert sweep_of(found)["case"] == [values]


def test_arguments_of_a_file_stand_in_the_form_as_people_write_them() -> None:
    found = fields_of({"name": "n", "case": [{"script": "t.py", "args": ["--b", "{seed}", "a b"]}]})
    assert found is not None
    assert found.text("args") == "--b {seed} 'a b'"


def test_addresses_of_messages_are_typed_with_spaces_between() -> None:
    addresses = ["https://a.example/x,y;z", "https://b.example/"]
    read = sweep(notify="  https://a.example/x,y;z   https://b.example/ ")
    assert read["notify"] == addresses
    again = fields_of(tomllib.loads(document_text(read)))
    assert again is not None
    assert again.text("notify") == " ".join(addresses)
    assert "notify" not in sweep(notify="  ")


def test_a_budget_is_typed_in_machine_hours() -> None:
    read = sweep(budget_machine_hours=" 2.5 ")
    assert read["budget_machine_hours"] == 2.5
    again = fields_of(tomllib.loads(document_text(read)))
    assert again is not None
    assert again.text("budget_machine_hours") == "2.5"


@pytest.mark.parametrize("value", [["a b"], [7], {"a": 1}, ["https://a.example/" + "x" * 2000]])
def test_addresses_that_the_form_could_not_give_back_are_for_the_file(value: object) -> None:
    assert fields_of({**sweep(), "notify": value}) is None


def test_a_refused_address_is_shown_at_its_field() -> None:
    assert refused_field(InvalidSpec("notify[1]", "...", "an address"))[0] == "notify"
