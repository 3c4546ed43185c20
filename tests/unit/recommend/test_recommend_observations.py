"""Which measurements predictors learn from, and which are kept apart or left out."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from farm.configuration.spec import TrainingPass
from farm.importers import IMPORTERS
from farm.importers.contracts import read_publication
from farm.recommend.configuration import Configuration
from farm.recommend.observations import LoadedObservations, load
from farm.store.measurements.imports import import_measurements
from tests.factories import NOW, add_measurement


def only(session: Session, **which: Any) -> LoadedObservations:
    [loaded] = load(session, **{"origin": "farm", **which}).values()
    return loaded


def gang(session: Session, key: str, **changes: Any) -> int:
    return add_measurement(session, key, **{"world_size": 2, "strategy": "mwms_ring", **changes})


def published(session: Session, name: str) -> LoadedObservations:
    [publication] = [p for p in IMPORTERS if p.name == name]
    measurements = read_publication(publication).measurements
    import_measurements(session, measurements, origin=name, source=name, now=NOW)
    return only(session, origin=name)


def test_a_measurement_is_an_observation_of_its_configuration(session: Session) -> None:
    row = gang(
        session,
        "1",
        step_time_s=0.5,
        one_way_delay_s=0.02,
        instance_type="d2",
        training_pass="forward",
    )
    [observation] = only(session).observations
    assert (observation.measurement_id, observation.step_time_s, observation.weight) == (
        row,
        0.5,
        1.0,
    )
    assert observation.configuration == Configuration(
        model="mlp",
        dataset="digits",
        training_pass=TrainingPass.FORWARD,
        strategy="mwms_ring",
        instance_type="d2",
        world_size=2,
        global_batch_size=32,
        one_way_delay_s=0.02,
    )


def test_repetitions_stay_separate_and_share_their_configuration(session: Session) -> None:
    gang(session, "1", step_time_s=0.5, steps_per_epoch=45, time_per_epoch_s=23.0, accuracy=0.8)
    gang(session, "2", step_time_s=0.6, steps_per_epoch=45, time_per_epoch_s=27.0, accuracy=0.9)
    gang(session, "3", step_time_s=0.7, repetition=2)
    loaded = only(session)
    assert [o.step_time_s for o in loaded.observations] == [0.5, 0.6, 0.7]
    [configuration] = {o.configuration for o in loaded.observations}
    assert configuration.world_size == 2


def test_one_machine_has_no_network_whatever_was_written(session: Session) -> None:
    add_measurement(session, "1", one_way_delay_s=0.02, network="ethernet")
    add_measurement(session, "2")
    assert len({o.configuration for o in only(session).observations}) == 1


def test_an_exact_emulator_is_told_by_its_delay_and_a_proxy_is_a_network(session: Session) -> None:
    for i, network in enumerate([None, "tc_netem", "vde_link", "tcp_proxy", "infiniband"]):
        gang(session, str(i), network=network, one_way_delay_s=0.02)
    networks = [o.configuration.network for o in only(session).observations]
    assert networks == [None, None, None, "tcp_proxy", "infiniband"]


def test_what_failed_is_kept_apart(session: Session) -> None:
    row = gang(session, "1", status="out_of_memory", step_time_s=None)
    loaded = only(session)
    assert loaded.observations == ()
    [failure] = loaded.failures
    assert (failure.measurement_id, failure.status) == (row, "out_of_memory")
    assert failure.configuration.world_size == 2


def test_a_time_of_what_failed_is_no_observation(session: Session) -> None:
    gang(session, "1", status="crashed", step_time_s=0.1)
    assert only(session).observations == ()


def test_a_failed_machine_says_nothing_of_the_configuration(session: Session) -> None:
    gang(session, "1", status="agent_lost", step_time_s=None)
    loaded = only(session)
    assert (loaded.observations, loaded.failures) == ((), ())


def test_a_step_time_is_taken_from_the_epoch_where_its_steps_are_known(session: Session) -> None:
    gang(session, "1", step_time_s=None, time_per_epoch_s=35.0, steps_per_epoch=70)
    gang(session, "2", step_time_s=None, time_per_epoch_s=35.0)
    assert [o.step_time_s for o in only(session).observations] == [0.5]


def test_a_disturbed_measurement_of_our_own_counts_less(session: Session) -> None:
    gang(session, "1", flags=[{"kind": "steal", "message": "3 % of the time was stolen"}])
    [observation] = only(session).observations
    assert 0 < observation.weight < 1


def test_kinds_of_hardware_are_never_pooled(session: Session) -> None:
    gang(session, "1", fingerprint="f")
    gang(session, "2", fingerprint="g")
    gang(session, "3", fingerprint="g")
    gang(session, "4")
    loaded = load(session, origin="farm")
    assert list(loaded) == ["g", None, "f"]
    assert [len(kind.observations) for kind in loaded.values()] == [2, 1, 1]


def test_origins_workloads_and_passes_are_told_apart(session: Session) -> None:
    gang(session, "1")
    gang(session, "2", origin="study")
    gang(session, "3", model="small_cnn")
    gang(session, "4", training_pass="forward")
    assert len(only(session).observations) == 3
    assert len(only(session, model="mlp", dataset="digits").observations) == 2
    assert len(only(session, training_pass=TrainingPass.FORWARD).observations) == 1
    assert load(session, origin="nobody") == {}


def test_of_anwar_all_but_the_failed_cell_is_observed(session: Session) -> None:
    loaded = published(session, "anwar2021")
    assert (len(loaded.observations), len(loaded.failures)) == (113, 1)
    assert all(0 < o.step_time_s < 12 for o in loaded.observations)
    cell = Configuration(
        model="small_cnn",
        dataset="mnist",
        framework="tensorflow",
        strategy="mwms",
        instance_type="t2.large",
        world_size=2,
        global_batch_size=2560,
        one_way_delay_s=0.04,
    )
    [observation] = [o for o in loaded.observations if o.configuration == cell]
    assert observation.step_time_s == 0.708


def test_of_graur_every_measurement_is_observed_once(session: Session) -> None:
    loaded = published(session, "graur2019")
    assert (len(loaded.observations), loaded.failures) == (265, ())
    networks = {o.configuration.network for o in loaded.observations}
    assert networks == {None, "ethernet_1g", "infiniband_fdr"}
