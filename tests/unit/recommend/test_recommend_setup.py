"""How a strategy is set up, as the one value that predictors know of it."""

from __future__ import annotations

import dataclasses
import tomllib
from typing import Any

import pytest
from pydantic import TypeAdapter

from farm.configuration.axes import spec_values
from farm.configuration.expansion import expand
from farm.configuration.spec import BatchSplit, OperatorPlacement, ServerPlacement
from farm.configuration.sweep import parse_sweep
from farm.recommend.configuration import Configuration
from farm.recommend.plans.planner import MeasurementPlan, PlannedMeasurement
from farm.recommend.plans.sweep_file import SweepForm, case, sweep_text
from farm.recommend.predictions import resolve
from farm.recommend.setup import USUAL_SETUP, Setup
from farm.registry import catalogue
from farm.values.codec import to_json
from tests.factories import job_spec

FORM = SweepForm(
    name="n", origin="farm", step_count=10, warmup_step_count=5, cost_unit="machine hours"
)


def configuration(**changes: Any) -> Configuration:
    fields: dict[str, Any] = {"strategy": "ps_async", "world_size": 2, "global_batch_size": 64}
    return Configuration(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, None),
        ({"placement": OperatorPlacement.HARD}, "hard"),
        ({"replicas_per_rank": 4}, "replicas_per_rank=4"),
        ({"steps_between_averages": 8, "world_size": 2}, "steps_between_averages=8"),
        ({"batch_split": BatchSplit.BY_SPEED}, "batch_split=by_speed"),
        ({"server_count": 2}, "server_placement=collocated"),
        (
            {
                "server_count": 1,
                "server_placement": ServerPlacement.APART,
                "placement": OperatorPlacement.HARD,
            },
            "hard, server_placement=apart",
        ),
    ],
)
def test_what_is_not_as_usual_has_a_name_that_a_sweep_file_can_say(
    changes: dict[str, Any], name: str | None
) -> None:
    spec = job_spec(**changes)
    found = Setup.of_job(spec)
    assert (found.text, Setup.read(name)) == (name, found)
    fields = found.cell_fields
    assert {field: getattr(spec, field) for field in fields} == fields
    left_out = dataclasses.replace(spec, **{f: getattr(job_spec(), f) for f in fields})
    assert Setup.of_job(left_out).text in (None, "server_placement=collocated")


@pytest.mark.parametrize("text", ["optimizer=lamb", "replicas_per_rank=0", "soft, device=tpu"])
def test_what_no_axis_takes_is_a_placement_of_an_import(text: str) -> None:
    assert Setup.of(text, {}).pairs == (("placement", text),)


def test_settings_that_nobody_told_are_as_usual_except_where_servers_are() -> None:
    assert Setup.of(None, {"replicas_per_rank": None, "batch_split": "even"}) == USUAL_SETUP
    assert Setup.of("soft", {}).text == "soft"


@pytest.mark.parametrize(
    ("of_gang", "alone"),
    [
        ("hard, device=cpu, batch_split=by_speed", "hard, device=cpu"),
        (
            "optimizer=adamw, precision=bfloat16, gradient_bucket_mib=1",
            "optimizer=adamw, precision=bfloat16",
        ),
        (
            "steps_between_averages=8, outer_momentum=0.5, compile=torch_compile",
            "compile=torch_compile",
        ),
        ("ranks_per_agent=2", None),
    ],
)
def test_one_machine_is_asked_for_as_its_gang_trains_and_on_its_device(
    of_gang: str, alone: str | None
) -> None:
    assert Setup.read(of_gang).of_one_machine.text == alone


def test_a_device_is_asked_for_by_its_axis() -> None:
    assert Setup.read("device=gpu").in_sweep_file == {"device": "gpu"}


def test_a_placement_of_another_study_is_no_axis_here() -> None:
    assert Setup.read("soft, on a whim, batch_split=").in_sweep_file == {}
    assert Setup.read(None).in_sweep_file == {}


def test_servers_beside_ranks_need_no_machines_of_their_own() -> None:
    assert Setup.read("server_placement=collocated").machine_count(2, 3) == 2
    assert Setup.read("hard, server_placement=apart").machine_count(2, 3) == 5
    assert Setup.read(None).machine_count(2, 3) == 5
    collocated = configuration(server_count=1, setup=Setup.read("server_placement=collocated"))
    assert collocated.machine_count == 2


def test_several_ranks_of_a_machine_are_one_machine() -> None:
    assert Setup.read("ranks_per_agent=2").machine_count(4, 0) == 2
    assert Setup.read("ranks_per_agent=4, server_placement=collocated").machine_count(4, 1) == 1
    assert Setup.read("ranks_per_agent=4").machine_count(2, 0) == 1  # of an import, say
    alone = configuration(world_size=4, setup=Setup.read("ranks_per_agent=4"))
    assert (alone.machine_count, alone.has_network, alone.is_one_machine) == (1, False, False)
    assert configuration(world_size=4, setup=Setup.read("ranks_per_agent=2")).has_network
    beside = "ranks_per_agent=4, server_placement=collocated"
    assert not configuration(world_size=4, server_count=1, setup=Setup.read(beside)).has_network
    assert configuration(
        world_size=4, server_count=1, setup=Setup.read("ranks_per_agent=4")
    ).has_network


def test_machines_that_only_serve_are_told_whatever_the_others_have_of_ranks() -> None:
    several = "ranks_per_agent=4"
    assert Setup.read(several).serving_machine_count(2) == 2
    assert Setup.read(f"{several}, server_placement=collocated").serving_machine_count(2) == 0


def test_a_planned_case_keeps_how_it_is_set_up() -> None:
    found = case(
        configuration(
            server_count=2, setup=Setup.read("hard, server_placement=apart"), network="infiniband"
        ),
        FORM,
    )
    assert found["server_count"] == 2
    assert (found["server_placement"], found["placement"]) == ("apart", "hard")
    assert found["network"] == "infiniband"
    assert "emulator" not in found


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"strategy": "mirrored", "world_size": 1}, {"replicas_per_rank": 1}),
        ({"strategy": "local_sgd"}, {"steps_between_averages": 1}),
        (
            {"strategy": "local_sgd", "setup": Setup.read("steps_between_averages=5")},
            {"steps_between_averages": 5},
        ),
        (
            {"strategy": "torch_diloco", "setup": Setup.read("outer_momentum=0")},
            {"steps_between_averages": 1, "outer_momentum": 0},
        ),
        # Where nobody told, servers are on machines of their own.
        ({"server_count": 1}, {"server_placement": "apart"}),
        (
            {"server_count": 1, "setup": Setup.read("server_placement=collocated")},
            {"server_placement": "collocated"},
        ),
    ],
)
def test_a_plan_is_set_up_as_proposed_where_a_sweep_file_has_another_default(
    changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    proposal = PlannedMeasurement(
        configuration=configuration(model="small_cnn", dataset="digits", **changes),
        cost=1.0,
        reason="why",
        regret_before_ratio=0.2,
        regret_after_ratio=0.1,
    )
    plan = MeasurementPlan(
        proposals=(proposal,), choice_count=1, regret_before_ratio=0.2, regret_after_ratio=0.1
    )
    text = sweep_text(plan, FORM, catalogue=catalogue())
    [spec] = expand(parse_sweep(tomllib.loads(text)), catalogue()).jobs
    values = spec_values(spec)
    assert {field: values[field] for field in expected} == expected
    found = Setup.of_job(spec).machine_count(spec.world_size, spec.server_count)
    assert found == proposal.configuration.machine_count


def test_a_network_of_another_study_is_not_asked_of_the_agents() -> None:
    other = dataclasses.replace(FORM, origin="a study")
    assert "network" not in case(configuration(network="infiniband"), other)
    assert "network" not in case(configuration(network="none"), FORM)
    proxied = case(configuration(network="infiniband+tcp_proxy"), FORM)
    assert (proxied["network"], proxied["emulator"]) == ("infiniband", "tcp_proxy")


def test_a_query_names_its_settings_by_their_columns() -> None:
    known = [
        configuration(strategy="mirrored", world_size=1, setup=Setup.read(f"replicas_per_rank={n}"))
        for n in (2, 4)
    ]
    given = {"world_size": 1, "global_batch_size": 64, "replicas_per_rank": 4}
    assert resolve(given, known).configuration == known[1]
    unsaid = resolve({"world_size": 1, "global_batch_size": 64}, known)
    assert unsaid.configuration is None
    assert "placement" in str(unsaid.unknown_because)


def test_the_farms_soft_placement_is_the_usual_one() -> None:
    known = [configuration(), configuration(setup=Setup.read("hard"))]
    given = {"world_size": 2, "global_batch_size": 64, "placement": "soft"}
    assert resolve(given, known).configuration == known[0]


def test_a_set_up_can_be_written_as_toml() -> None:
    text = "\n".join(
        f'{k} = "{v}"' for k, v in Setup.read("hard, batch_split=by_speed").in_sweep_file.items()
    )
    assert tomllib.loads(text) == {"placement": "hard", "batch_split": "by_speed"}


@pytest.mark.parametrize(
    "text",
    [
        "on a whim",
        "batch_split=by_speed, hard",
        "hard, on a whim",
        "ranks_per_agent=many",
        "batch_split=",
        "n/a",
    ],
)
def test_a_placement_of_a_study_is_published_as_it_came(text: str) -> None:
    found = Setup.of(text, {"batch_split": "by_speed"})
    assert Setup.of(text, {}).text == text
    assert found.text == f"{text}, batch_split=by_speed"
    assert found != Setup.of("another", {"batch_split": "by_speed"})
    assert found.without("batch_split") == Setup.of(text, {})


def test_values_that_one_text_says_are_one_set_up() -> None:
    rates = (0.1, 0.1 + 1e-12)
    assert len({Setup.of(None, {"outer_learning_rate": rate}) for rate in rates}) == 1


def test_answers_publish_the_text_of_a_set_up_as_placement() -> None:
    published = to_json(configuration(setup=Setup.read("hard, ranks_per_agent=2")))
    assert isinstance(published, dict)
    assert published["placement"] == "hard, ranks_per_agent=2"
    assert to_json([configuration()]) == [{**published, "placement": None}]


def test_the_document_of_the_api_describes_it_as_a_text() -> None:
    described = TypeAdapter(Configuration).json_schema(mode="serialization")["properties"]
    assert "setup" not in described
    assert described["placement"] == {**described["instance_type"], "title": "Placement"}
