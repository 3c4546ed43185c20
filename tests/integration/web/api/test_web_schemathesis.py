"""Whatever the document allows, and much that it does not: no answer that it does not describe.

The cases are drawn in a fixed order, so that a failure stays one.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import schemathesis
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import APIOperation, Case, CheckFunction, GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.web.web_client import TOKEN, Seeded, bearer, seed, web_settings, without_limits
from web.app import create_app

Operation: TypeAlias = APIOperation[Any, Any, Any, Any]
HEADERS = bearer(TOKEN)
CASES = 10  # of each operation and mode
# What no schema can say: two parameters that exclude each other, a model that is not registered,
# what a ZIP file is.
WITH_RULES_OF_THEIR_OWN = {
    "/api/v1/bundles",
    "/api/v1/sweeps",
    "/api/v1/sweeps/preview",
    "/api/v1/sweeps/{sweep_id}/figure",
    "/api/v1/recommendation",
    "/api/v1/plan",
}


@schemathesis.serializer("application/zip")
def any_bytes(_: object, value: object) -> bytes:
    """What is drawn, as a body that is no ZIP file."""
    return value if isinstance(value, bytes) else str(value).encode()


def _known(seeded: Seeded) -> dict[str, Any]:
    return {
        "sweep_id": seeded.sweep_id,
        "job_id": seeded.measured,
        "agent_id": "a1",
        "origin": "farm",
    }


def test_no_answer_is_other_than_described(engine: sa.Engine) -> None:
    known = _known(seed(engine))
    app = create_app(web_settings(FARM_API_TOKEN=TOKEN), engine=engine)
    without_limits(app.test_client())
    document = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", app, headers=HEADERS)
    # A stream ends after ten minutes; it has tests of its own.
    found = document.exclude(path="/api/v1/events").get_all_operations()
    operations: list[Operation] = [result.ok() for result in found if isinstance(result, Ok)]
    assert len(operations) > 20
    for operation in operations:
        names = {parameter.name for parameter in operation.path_parameters}
        there = {name: value for name, value in known.items() if name in names}
        _ask(operation, GenerationMode.POSITIVE, path_parameters=there or None)
        if names:
            _ask(operation, GenerationMode.POSITIVE)
        if names or operation.query or operation.body:
            _ask(operation, GenerationMode.NEGATIVE)


def _ask(
    operation: Operation, mode: GenerationMode, *, path_parameters: dict[str, Any] | None = None
) -> None:
    excluded: list[CheckFunction] = []
    if operation.path in WITH_RULES_OF_THEIR_OWN:
        excluded.append(positive_data_acceptance)

    @given(case=operation.as_strategy(generation_mode=mode, path_parameters=path_parameters))
    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Case[Any]) -> None:
        case.call_and_validate(headers=HEADERS, excluded_checks=excluded)

    ask()
