"""A client that holds every answer of the API to the API's own document."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator
from werkzeug.test import TestResponse

from web.api.schema import openapi

_REFUSED_BY_ROUTING = (404, 405)
_PROBLEM = {"$ref": "#/components/schemas/Problem"}


class DescribedClient(FlaskClient):
    """As Flask's own, but an answer that the document does not describe fails the test."""

    def open(self, *args: Any, **kwargs: Any) -> TestResponse:
        answer = super().open(*args, **kwargs)
        if answer.request.path.startswith("/api/v1/"):
            hold(self.application, answer)
        return answer


def hold(app: Flask, answer: TestResponse) -> None:
    """Fail where status, content type or body are not what the document says."""
    document = document_of(app)
    request = answer.request
    if request.path.startswith("/api/v1/docs"):
        return  # a page for people
    method = "GET" if request.method == "HEAD" else request.method
    operation = _operation(document, method, request.path)
    if operation is None:
        assert answer.status_code >= 400, f"{request.method} {request.path} is not described"
        if answer.status_code in _REFUSED_BY_ROUTING:
            _check(_PROBLEM, answer)
        return
    where = f"{request.method} {request.path}: {answer.status_code}"
    described = operation["responses"].get(str(answer.status_code))
    assert described is not None, f"{where} is not described"
    if request.method == "HEAD":
        return
    content = described.get("content")
    if content is None:
        assert answer.get_data() == b"", f"{where} has a body"
        return
    assert answer.mimetype in content, f"{where} is {answer.mimetype}, described: {list(content)}"
    if answer.mimetype in ("application/json", "application/problem+json"):
        _check(content[answer.mimetype]["schema"], answer)


def document_of(app: Flask) -> dict[str, Any]:
    """Return the document, made once: only what it says of tokens differs between applications."""
    if not _document:
        with app.test_request_context():
            _document.update(json.loads(openapi.document_text()))
    return _document


_document: dict[str, Any] = {}


def _operation(document: dict[str, Any], method: str, path: str) -> dict[str, Any] | None:
    fitting = [
        operations
        for template, operations in document["paths"].items()
        if re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", template), path)
    ]
    # Of /sweeps/preview and /sweeps/{sweep_id}, the one that has the method.
    found = [operations[method.lower()] for operations in fitting if method.lower() in operations]
    return found[0] if found else None


def _check(schema: dict[str, Any], answer: TestResponse) -> None:
    key = json.dumps(schema, sort_keys=True)
    errors = [
        f"{error.json_path}: {error.message[:300]}"
        for error in _validator(key).iter_errors(json.loads(answer.get_data()))
    ]
    assert errors == [], f"{answer.request.method} {answer.request.path}"


@functools.cache
def _validator(schema: str) -> Draft202012Validator:
    components = json.loads(json.dumps(_document["components"]))
    for one in components["schemas"].values():
        # Readers shall bear new fields; here a field that is not described is a mistake.
        if "properties" in one:
            one.setdefault("additionalProperties", False)
    return Draft202012Validator({**json.loads(schema), "components": components})
