"""What any tracker gets of a job."""

from __future__ import annotations

import sqlalchemy as sa

from farm.store.engine import reading, writing
from farm.trackers.sending import describe_job
from tests.factories import add_agent, add_attempt, add_measurement, add_sweep, job_spec

MODEL = "script:train.py@0123456789ab '{lr}=1e-3' -- --lr {lr}"


def test_the_parameters_of_a_script_are_parameters(engine: sa.Engine) -> None:
    spec = job_spec(model=MODEL, dataset="script", strategy="torch_script")
    with writing(engine) as session:
        [job_id] = add_sweep(session, spec)
        add_agent(session, "a1")
        token = add_attempt(session, job_id, ["a1"])
        add_measurement(session, "one", job_id=job_id, attempt_id=token, model=MODEL)
    with reading(engine) as session:
        described = describe_job(session, job_id)
    assert described is not None
    assert described.parameters["parameters.lr"] == "1e-3"
    assert described.parameters["model"] == MODEL
