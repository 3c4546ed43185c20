from typing import Any

from farm.configuration.spec import TrainingPass
from farm.recommend.configuration import Configuration
from farm.recommend.predictions import ResolvedConfiguration, resolve
from farm.recommend.setup import USUAL_SETUP, Setup


def measured(world_size: int, **changes: Any) -> Configuration:
    fields: dict[str, Any] = {"model": "m", "dataset": "d", "strategy": "ring", "network": "cable"}
    found = Configuration(
        **{**fields, "world_size": world_size, "global_batch_size": 64, **changes}
    )
    return found.without_network() if found.is_one_machine else found


KNOWN = [measured(1), measured(2), measured(4)]


def ask(*known: Configuration, **given: Any) -> ResolvedConfiguration:
    return resolve({"world_size": 2, "global_batch_size": 8, **given}, known)


def test_what_a_query_does_not_name_is_what_the_measurements_have_in_common() -> None:
    assert ask(*KNOWN).configuration == measured(2, global_batch_size=8)


def test_what_they_differ_in_has_to_be_named() -> None:
    known = [*KNOWN, measured(2, strategy="star")]
    assert ask(*known).unknown_because == "strategy: not given, and measured with ring, star"
    found = ask(*known, strategy="star").configuration
    assert found is not None
    assert (found.strategy, found.network) == ("star", "cable")


def test_a_name_given_narrows_down_the_others() -> None:
    known = [*KNOWN, measured(2, strategy="star", network="wireless", setup=Setup.read("hard"))]
    found = ask(*known, strategy="star").configuration
    assert found is not None
    assert (found.network, found.setup.text) == ("wireless", "hard")


def test_where_some_have_no_such_name_neither_has_the_query() -> None:
    known = [*KNOWN, measured(2, setup=Setup.read("hard"))]
    found = ask(*known).configuration
    assert found is not None
    assert found.setup == USUAL_SETUP
    assert ask(*known, placement="n/a") == ask(*known)


def test_one_machine_has_no_network_whatever_the_query_says() -> None:
    found = ask(*KNOWN, world_size=1, network="satellite", one_way_delay_s=0.1).configuration
    assert found == measured(1, global_batch_size=8)


def test_names_that_nobody_measured_stay_as_they_are() -> None:
    found = ask(*KNOWN, network="satellite").configuration
    assert found is not None
    assert found.network == "satellite"


def test_a_pass_that_is_not_named_is_a_whole_step() -> None:
    forward = measured(2, training_pass=TrainingPass.FORWARD)
    for known, expected in (
        ([*KNOWN, forward], TrainingPass.FORWARD_BACKWARD),
        ([forward], TrainingPass.FORWARD),
    ):
        found = ask(*known).configuration
        assert found is not None
        assert found.training_pass is expected


def test_an_emulators_name_is_not_a_network_of_its_own() -> None:
    found = ask(measured(2, network=None), network="tc_netem").configuration
    assert found is not None
    assert found.network is None


def test_a_condition_that_is_not_given_is_that_of_all_gangs() -> None:
    far = [measured(1), measured(2, one_way_delay_s=0.02), measured(4, one_way_delay_s=0.02)]
    assert ask(*far).configuration == measured(2, global_batch_size=8, one_way_delay_s=0.02)
    assert ask(*far, one_way_delay_s=0.0).configuration == measured(2, global_batch_size=8)
    assert ask(*far, *KNOWN).configuration == measured(2, global_batch_size=8)
    assert ask(*far, world_size=1).configuration == measured(1, global_batch_size=8)


def test_a_world_size_that_does_not_fill_its_machines_has_no_prediction() -> None:
    pairs = [measured(size, setup=Setup.read("ranks_per_agent=2")) for size in (2, 4)]
    assert ask(*pairs, world_size=6).configuration == measured(
        6, setup=Setup.read("ranks_per_agent=2"), global_batch_size=8
    )
    for given in ({"world_size": 3}, {"world_size": 5, "placement": "ranks_per_agent=2"}):
        found = ask(*pairs, **given)
        assert found.configuration is None
        assert str(given["world_size"]) in (found.unknown_because or "")
