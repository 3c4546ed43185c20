"""What a job is compared with."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.configuration.spec import JobSpec, NetworkProfile
from farm.gang.lifecycle import JobState
from farm.store.engine import writing
from farm.store.measurements.neighbours import neighbours_of, repetitions_of
from farm.store.tables import JobRow
from tests import factories

DELAYED = NetworkProfile(one_way_delay_s=0.02)


def _measured(session: Session, spec: JobSpec, **changes: Any) -> int:
    """Add a job of this configuration and its measurement."""
    network = spec.network or NetworkProfile()
    job_id = factories.add_job(session, spec, state=JobState.SUCCEEDED)
    columns: dict[str, Any] = {
        "job_id": job_id,
        "strategy": spec.strategy,
        "world_size": spec.world_size,
        "global_batch_size": spec.global_batch_size,
        "one_way_delay_s": network.one_way_delay_s,
        "bandwidth_bytes_per_s": network.bandwidth_bytes_per_s,
        "fingerprint": "a kind",
    }
    factories.add_measurement(session, f"job {job_id}", **{**columns, **changes})
    return job_id


def _gang(**changes: Any) -> JobSpec:
    return factories.job_spec(
        **{"world_size": 2, "global_batch_size": 64, "network": DELAYED, **changes}
    )


def _found(session: Session, spec: JobSpec, fingerprint: str | None = "a kind") -> set[int]:
    return {one.job_id for one in neighbours_of(session, spec, fingerprint=fingerprint)}


def test_one_thing_is_changed_and_no_more(engine: sa.Engine) -> None:
    with writing(engine) as session:
        own = _measured(session, _gang())
        limited = NetworkProfile(one_way_delay_s=0.02, bandwidth_bytes_per_s=1e6)
        near = {
            _measured(session, _gang(world_size=3)),
            _measured(session, _gang(global_batch_size=128)),
            _measured(session, _gang(network=None)),
            _measured(session, _gang(network=limited)),
            _measured(session, _gang(strategy="another")),
            _measured(session, _gang(), training_pass="forward"),
        }
        _measured(session, _gang(world_size=3, global_batch_size=128))
        _measured(session, _gang(world_size=3, network=None))
        assert _found(session, _gang()) == near
        assert own not in near


def test_one_machine_has_no_network_and_no_strategy_to_differ_in(engine: sa.Engine) -> None:
    with writing(engine) as session:
        single = _measured(session, factories.job_spec(global_batch_size=64))
        other = _measured(session, factories.job_spec(global_batch_size=32))
        gang = _measured(session, _gang())
        assert _found(session, _gang()) == {single}
        assert _found(session, factories.job_spec(global_batch_size=64)) == {other, gang}


def test_one_machine_and_other_strategies_train_with_the_same_options(engine: sa.Engine) -> None:
    own = {"precision": "bfloat16", "optimizer": "adamw"}
    kept = {"details": {"axes": own}}
    other = {"details": {"axes": {**own, "precision": "float32"}}}
    with writing(engine) as session:
        near = {
            _measured(session, factories.job_spec(global_batch_size=64), **kept),
            _measured(session, _gang(strategy="another"), **kept),
            _measured(session, _gang(), **other),
        }
        _measured(session, factories.job_spec(global_batch_size=64), **other)
        _measured(session, _gang(strategy="another"), **other)
        assert _found(session, _gang(axes=own)) == near


def test_kinds_of_hardware_models_and_failures_are_kept_apart(engine: sa.Engine) -> None:
    with writing(engine) as session:
        alike = _measured(session, _gang(world_size=3))
        elsewhere = _measured(session, _gang(world_size=4), fingerprint="another kind")
        _measured(session, _gang(world_size=5), model="another")
        _measured(session, _gang(world_size=6), dataset="another")
        _measured(session, _gang(world_size=7), status="out_of_memory")
        factories.add_measurement(
            session, "imported", origin="a study", strategy="mwms_ring", world_size=9
        )
        assert _found(session, _gang()) == {alike}
        assert _found(session, _gang(), None) == {alike, elsewhere}


def test_repetitions_are_the_jobs_of_the_cell_whatever_became_of_them(engine: sa.Engine) -> None:
    with writing(engine) as session:
        first = _measured(session, _gang(), step_time_s=0.25)
        second = factories.add_job(session, _gang(repetition=1, seed=1))
        factories.add_job(session, _gang(world_size=3))
        rows = repetitions_of(session, session.get_one(JobRow, first), limit=10)
        assert [(row.id, row.repetition, row.state, row.step_time_s) for row in rows] == [
            (second, 1, JobState.WAITING, None),
            (first, 0, JobState.SUCCEEDED, 0.25),
        ]
        assert len(repetitions_of(session, session.get_one(JobRow, first), limit=1)) == 1


def test_how_a_strategy_is_set_up_is_an_axis_and_another_strategy_one_axis_in_all(
    engine: sa.Engine,
) -> None:
    served = {"strategy": "ps_async", "server_count": 1, "server_placement": "collocated"}
    own = _gang(strategy="ps_async", server_count=1)
    with writing(engine) as session:
        near = {
            _measured(session, _gang(), **{**served, "server_count": 2}),
            _measured(session, _gang(), **{**served, "server_placement": "apart"}),
            _measured(session, _gang(), **served, placement="hard"),
            _measured(session, _gang(), **served, network="infiniband"),
            _measured(session, _gang(strategy="mwms_ring")),
        }
        _measured(session, _gang(), **served)
        _measured(session, _gang(), **served, placement="soft", network="tc_netem")
        _measured(session, _gang(), **served, placement="hard", network="infiniband")
        _measured(session, _gang(strategy="mwms_ring"), batch_split="by_speed")
        assert _found(session, own) == near
        found = {one.job_id: one for one in neighbours_of(session, own, fingerprint="a kind")}
    assert {one.values["interface"] for one in found.values()} == {None, "infiniband"}
    assert {one.values["server_placement"] for one in found.values()} == {
        None,
        "collocated",
        "apart",
    }


def test_a_measurement_older_than_a_setting_has_what_it_was_then(engine: sa.Engine) -> None:
    with writing(engine) as session:
        old = _measured(session, _gang(world_size=3))
        new = _measured(
            session,
            _gang(world_size=3),
            replicas_per_rank=1,
            steps_between_averages=1,
            batch_split="even",
            placement="soft",
        )
        assert _found(session, _gang()) == {old, new}
