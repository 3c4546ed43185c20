"""Writes `benchfarm/client/queries.py` from the API's document: what each query may ask."""

from __future__ import annotations

import keyword
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from apiflask import APIFlask

from tests.web.web_client import web_settings
from web.app import create_app

PATH = "benchfarm/client/queries.py"
_QUERIES = {
    "MeasurementQuery": ("/api/v1/measurements", "Which measurements."),
    "RecommendationQuery": ("/api/v1/recommendation", "What is asked of a recommendation."),
    "PlanQuery": ("/api/v1/plan", "What is asked of a plan."),
}
# The client turns the pages itself.
_LEFT_OUT = ("limit", "cursor")
_HEAD = '''"""What may be asked of a farm: written by `python -m tests.document_tables`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Required, TypedDict
'''


def api_document() -> dict[str, Any]:
    """Return the OpenAPI document, of which no store is needed."""
    app = create_app(web_settings(), engine=sa.create_engine("sqlite://"))
    assert isinstance(app, APIFlask)
    with app.app_context():
        document = app.spec
    assert isinstance(document, dict)
    return document


def queries_module(document: Mapping[str, Any]) -> str:
    """Return the module's text. `document`: the OpenAPI document."""
    classes = [
        _class(name, meaning, document["paths"][path]["get"]["parameters"])
        for name, (path, meaning) in _QUERIES.items()
    ]
    return "\n\n".join([_HEAD, *classes])


def _class(name: str, meaning: str, parameters: list[dict[str, Any]]) -> str:
    wanted = [p for p in parameters if p["in"] == "query" and p["name"] not in _LEFT_OUT]
    lines = [f"class {name}(TypedDict, total=False):", f'    """{meaning}', ""]
    for parameter in wanted:
        said = f"- `{_python_name(parameter)}`: {_uncapitalised(parameter['description'])}"
        lines += textwrap.wrap(said, 100, initial_indent="    ", subsequent_indent="      ")
    lines += ['    """', "", *(f"    {field}" for field in _fields(wanted))]
    return "\n".join(lines) + "\n"


def _fields(parameters: list[dict[str, Any]]) -> Iterator[str]:
    for parameter in parameters:
        kind = _kind(parameter["schema"])
        annotation = f"Required[{kind}]" if parameter["required"] else f"{kind} | None"
        yield f"{_python_name(parameter)}: {annotation}"


def _python_name(parameter: Mapping[str, Any]) -> str:
    name: str = parameter["name"]
    return f"{name}_" if keyword.iskeyword(name) else name


def _kind(schema: Mapping[str, Any]) -> str:
    kinds = {"integer": "int", "number": "float", "boolean": "bool", "string": "str"}
    if schema["type"] == "array":
        return f"str | Sequence[{kinds[schema['items']['type']]}]"
    is_priced = "=" in schema.get("pattern", "")
    return "str | Mapping[str, float]" if is_priced else kinds[schema["type"]]


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".") if text[1:2].islower() else text.rstrip(".")
