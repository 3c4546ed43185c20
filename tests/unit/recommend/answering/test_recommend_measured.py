import dataclasses
import re
from typing import Any

import pytest

from farm.recommend.answering.options import Options, options_for
from farm.recommend.configuration import Configuration
from farm.recommend.contracts import Evidence, Question
from farm.recommend.setup import Setup
from tests.facts import lacking

QUESTION = Question(model="mlp", dataset="digits", global_batch_size=64, one_way_delay_s=0.02)


def evidence(measurement_id: int, **changes: Any) -> Evidence:
    """One machine, 2 s an epoch; with `world_size` a gang at the delay asked about."""
    is_gang = changes.get("world_size", 1) > 1
    configured: dict[str, Any] = {
        "model": "mlp",
        "dataset": "digits",
        "strategy": "mwms_ring" if is_gang else "single",
        "framework": "tensorflow 2.21.0",
        "network": "netem" if is_gang else None,
        "world_size": 1,
        "global_batch_size": 64,
        "one_way_delay_s": 0.02 if is_gang else 0.0,
    }
    measured: dict[str, Any] = {
        "status": "ok",
        "fingerprint": "f" * 64,
        "step_time_s": 0.1,
        "step_time_spread_s": 0.01,
        "steps_per_epoch": 20,
        "time_per_epoch_s": 2.0,
        "accuracy": None,
    }
    names = {field.name for field in dataclasses.fields(Configuration)}
    for name, value in changes.items():
        (configured if name in names else measured)[name] = value
    return Evidence(
        measurement_id=measurement_id, configuration=Configuration(**configured), **measured
    )


def found(
    *known: Evidence,
    question: Question = QUESTION,
    examples_count: int | None = None,
    prices: dict[str, float] | None = None,
) -> Options:
    return options_for(
        known,
        question,
        examples_count=examples_count,
        prices_usd_per_hour=prices or {},
    )


def widths(result: Options) -> list[int]:
    return sorted(option.world_size for option in result.options)


def test_one_machine_answers_at_every_delay_but_a_gang_only_at_its_own() -> None:
    result = found(
        evidence(1),
        evidence(2, world_size=2),
        evidence(3, world_size=3, one_way_delay_s=0.01),
    )
    assert widths(result) == [1, 2]


def test_ranks_of_one_machine_answer_at_every_delay_too() -> None:
    here, elsewhere = (
        evidence(i, world_size=4, setup=Setup.read(f"ranks_per_agent={each}"), one_way_delay_s=0.0)
        for i, each in ((1, 4), (2, 2))
    )
    assert [option.setup.text for option in found(here, elsewhere).options] == ["ranks_per_agent=4"]


def test_a_server_needs_a_network_even_with_one_rank() -> None:
    assert widths(found(evidence(1, server_count=1))) == []


@pytest.mark.parametrize(
    "change",
    [
        {"packet_loss_ratio": 0.01},
        {"jitter_s": 0.001},
        {"bandwidth_bytes_per_s": 1e6},
        {"global_batch_size": 65},
    ],
)
def test_a_gang_measured_under_other_conditions_does_not_answer(change: dict[str, Any]) -> None:
    assert widths(found(evidence(1, world_size=2, **change))) == []


def test_a_delay_that_differs_in_its_last_bits_is_the_same() -> None:
    assert widths(found(evidence(1, world_size=2, one_way_delay_s=0.020000000000000004))) == [2]


def test_a_choice_of_world_sizes_or_strategies_leaves_one_machine_in() -> None:
    known = [evidence(1), evidence(2, world_size=2), evidence(3, world_size=3)]
    for narrowed in ({"world_sizes": (3,)}, {"strategies": ("mwms_ring",), "world_sizes": (3,)}):
        question = Question(global_batch_size=64, one_way_delay_s=0.02, **narrowed)
        assert widths(found(*known, question=question)) == [1, 3]


def test_a_choice_of_instance_types_binds_one_machine_too() -> None:
    known = [evidence(1, instance_type="small"), evidence(2, instance_type="large")]
    question = Question(global_batch_size=64, instance_types=("large",))
    assert [o.instance_type for o in found(*known, question=question).options] == ["large"]


def test_repetitions_become_one_option_with_median_and_range() -> None:
    [option] = found(
        evidence(1, time_per_epoch_s=2.0, step_time_s=0.10),
        evidence(2, time_per_epoch_s=3.0, step_time_s=0.15),
        evidence(3, time_per_epoch_s=2.5, step_time_s=0.125),
    ).options
    assert (option.time_per_epoch_s, option.spread_s, option.step_time_s) == (2.5, 1.0, 0.125)
    assert option.measurement_ids == (1, 2, 3)
    assert option.basis == "measured"
    assert option.low_s is not None
    assert option.low80_s is not None
    assert option.low_s < option.low80_s < 2.5


def test_one_repetition_has_neither_range_nor_interval() -> None:
    [option] = found(evidence(1)).options
    assert (option.spread_s, option.low_s, option.high_s, option.low80_s) == (None,) * 4


def test_without_a_time_per_epoch_it_is_the_step_time_times_the_steps() -> None:
    [option] = found(evidence(1, time_per_epoch_s=None)).options
    assert option.time_per_epoch_s == pytest.approx(0.1 * 20)


def test_the_last_step_of_an_epoch_may_be_partial() -> None:
    known = evidence(1, time_per_epoch_s=None, steps_per_epoch=None)
    [option] = found(known, examples_count=65).options
    assert option.time_per_epoch_s == pytest.approx(0.1 * 65 / 64)


def test_an_epoch_of_unknown_length_is_said_and_not_guessed() -> None:
    result = found(evidence(1, time_per_epoch_s=None, steps_per_epoch=None))
    [option] = result.options
    assert (option.step_time_s, option.time_per_epoch_s, option.time_s) == (0.1, None, None)
    [warning] = result.warnings
    assert lacking(warning, "not known", "how many steps", "time of one step") == []


def test_epochs_and_machines_multiply_into_time_and_cost() -> None:
    known = evidence(1, world_size=2, server_count=1, instance_type="small")
    question = Question(global_batch_size=64, one_way_delay_s=0.02, epochs=5)
    [option] = found(known, question=question, prices={"small": 3.6}).options
    assert option.time_s == pytest.approx(10.0)
    assert option.cost_usd == pytest.approx(3 * 10.0 * 3.6 / 3600)


def test_without_a_price_the_cost_is_missing_not_zero() -> None:
    result = found(evidence(1), evidence(2, instance_type="small"), prices={"large": 1.0})
    assert [option.cost_usd for option in result.options] == [None, None]


def test_kinds_of_hardware_are_never_pooled() -> None:
    old, new = "a" * 64, "b" * 64
    result = found(
        evidence(1, fingerprint=old, time_per_epoch_s=2.0),
        evidence(2, fingerprint=new, time_per_epoch_s=4.0),
    )
    assert [option.time_per_epoch_s for option in result.options] == [4.0]
    [warning] = result.warnings
    assert lacking(warning, "2 kinds of hardware") == []
    assert re.findall(r"a{12}|b{12}", warning) == [new[:12], old[:12]]


def test_the_hardware_with_most_configurations_answers_even_if_older() -> None:
    old, new = "a" * 64, "b" * 64
    result = found(
        evidence(1, fingerprint=old),
        evidence(2, fingerprint=old, world_size=2),
        evidence(3, fingerprint=new),
    )
    assert {option.fingerprint for option in result.options} == {old}


def test_a_failed_configuration_does_not_make_its_hardware_the_richer_one() -> None:
    old, new = "a" * 64, "b" * 64
    result = found(
        evidence(1, fingerprint=old),
        evidence(2, fingerprint=old, world_size=2, status="out_of_memory"),
        evidence(3, fingerprint=new),
    )
    assert {option.fingerprint for option in result.options} == {new}


def test_instance_types_stand_beside_each_other() -> None:
    result = found(
        evidence(1, instance_type="small", fingerprint="a" * 64),
        evidence(2, instance_type="large", fingerprint="b" * 64),
    )
    assert [option.instance_type for option in result.options] == ["small", "large"]
    assert result.warnings == ()


@pytest.mark.parametrize(
    "change",
    [{"framework": "torch 2.13"}, {"network": "proxy"}, {"setup": Setup.read("collocated")}],
)
def test_what_was_measured_in_another_way_is_another_option(change: dict[str, Any]) -> None:
    result = found(evidence(1, world_size=2), evidence(2, world_size=2, **change))
    assert widths(result) == [2, 2]


def test_what_failed_is_no_option_and_is_said() -> None:
    result = found(
        evidence(1),
        evidence(2, world_size=2, status="out_of_memory", time_per_epoch_s=None, framework=None),
        evidence(3, world_size=2, status="not_a_number", time_per_epoch_s=None),
    )
    assert widths(result) == [1]
    [warning] = result.warnings
    facts = ("mwms_ring", "world_size 2", "not_a_number", "out_of_memory", "2 of 2")
    assert lacking(warning, *facts) == []


def test_what_failed_now_and_then_is_an_option_with_a_warning() -> None:
    result = found(
        evidence(1, world_size=2),
        evidence(2, world_size=2, status="time_limit", framework=None, network=None),
    )
    assert widths(result) == [2]
    [warning] = result.warnings
    assert lacking(warning, "mwms_ring", "world_size 2", "time_limit", "1 of 2") == []


@pytest.mark.parametrize(("other_s", "is_said"), [(0.2, True), (1.9, False), (4.0, False)])
def test_other_hardware_that_is_faster_as_asked_is_a_reason_for_caution(
    other_s: float, is_said: bool
) -> None:
    result = found(
        evidence(1, fingerprint="a" * 64),
        evidence(2, fingerprint="a" * 64, world_size=2),
        evidence(3, fingerprint="b" * 64, time_per_epoch_s=other_s, step_time_s=other_s / 20),
    )
    caution = (
        "an epoch was 10.0 times as fast on other hardware, bbbbbbbbbbbb, which this does not "
        "answer for"
    )
    assert result.cautions == ((caution,) if is_said else ())
