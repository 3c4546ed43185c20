"""Requests that no client of ours would send, to every address: never a 5xx, never half an effect.

`test_web_schemathesis.py` asks the API what its document allows, and a little beyond; here pages
and forms are asked, too, and bodies are any bytes. The examples are what is known to have broken
programs like this one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import quote, urlencode

import sqlalchemy as sa
from flask import Flask
from hypothesis import example, given, settings
from hypothesis import strategies as st

from farm.store.base import Table
from farm.store.engine import reading
from tests.web.web_client import SWEEP, csrf_of, seed, web_settings, without_limits
from web.app import create_app

CASES = 150
# A stream ends after ten minutes, and has tests of its own.
LEFT_OUT = {"api_events.get_events"}
# The farm of this test has no broker, which is not what is asked here.
MAY_BE_UNREADY = "/health/ready"
METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS")
JSON_TYPE, TOML_TYPE = "application/json", "application/toml"
FORM_TYPE = "application/x-www-form-urlencoded"
PARTS_TYPE = "multipart/form-data; boundary=x"
HEADERS = ("Accept", "Authorization", "Cookie", "Host", "If-None-Match", "Origin", "Range")
CSRF = "the CSRF token"  # put into its place when it is known
PARAMETERS = (
    *("limit", "cursor", "state", "sweep", "attempt", "rank", "model", "strategy", "origin"),
    *("global_batch_size", "world_sizes", "one_way_delay_ms", "alpha", "budget_usd", "network"),
    *("confidence", "columns", "next", "theme", "field", "case", "sweep_ids", "first", "last"),
)
CHANGED = ("sweeps", "jobs", "measurements", "agents")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    query: str = ""
    body: bytes = b""
    content_type: str = JSON_TYPE
    header: tuple[str, str] = ("Accept", "*/*")


def forms(fields: Mapping[str, str]) -> bytes:
    return urlencode(fields, errors="surrogatepass").encode()


def sweeps(fields: Mapping[str, object]) -> bytes:
    [case] = cast(list[dict[str, object]], SWEEP["case"])
    return json.dumps({**SWEEP, "case": [{**case, **fields}]}).encode()


words = st.text(max_size=6) | st.sampled_from(["1", "2", "0", "-1", "a1", "farm", "nan", "9" * 30])
names = st.sampled_from(PARAMETERS) | st.text(max_size=4)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
axes = st.sampled_from(["model", "world_size", "global_batch_size", "steps", "pass", "x"])
bodies = (
    st.binary(max_size=40)
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(axes, json_values, max_size=2).map(sweeps)
    | st.dictionaries(names, words, max_size=3).map(forms)
    | st.dictionaries(names, words, max_size=3).map(lambda f: forms({"csrf_token": CSRF, **f}))
)
# What a socket may carry in a header's line.
lines = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=12)
headers = st.tuples(st.sampled_from(HEADERS), lines)


def requests(app: Flask) -> st.SearchStrategy[Request]:
    """Any method on any address that there is, with anything in each of its places."""
    rules = sorted(r.rule for r in app.url_map.iter_rules() if r.endpoint not in LEFT_OUT)

    def filled(rule: str) -> st.SearchStrategy[str]:
        # Every second part is the name of a place.
        parts = rule.replace(">", "<").split("<")
        texts = [words.map(quoted) if at % 2 else st.just(part) for at, part in enumerate(parts)]
        return st.tuples(*texts).map("".join)

    return st.builds(
        Request,
        method=st.sampled_from(["GET", "POST"]) | st.sampled_from(METHODS),
        path=st.sampled_from(rules).flatmap(filled),
        query=st.dictionaries(names, words, max_size=3).map(lambda q: forms(q).decode())
        | st.binary(max_size=8).map(lambda raw: quote(raw, safe="&=+%")),
        body=bodies,
        content_type=st.sampled_from([JSON_TYPE, TOML_TYPE, FORM_TYPE, PARTS_TYPE]) | lines,
        header=headers,
    )


def quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def content(engine: sa.Engine) -> list[list[tuple[object, ...]]]:
    """All rows of what a request may change."""
    with reading(engine) as session:
        tables = [Table.metadata.tables[name].select() for name in CHANGED]
        return [[tuple(row) for row in session.execute(table)] for table in tables]


def test_no_request_breaks_the_server_and_what_is_refused_has_no_effect(engine: sa.Engine) -> None:
    seed(engine)
    # Not one that holds the API to its document, which has no word for such requests.
    client = without_limits(create_app(web_settings(), engine=engine).test_client())
    csrf = csrf_of(client)
    kept = [content(engine)]

    @settings(max_examples=CASES, database=None, derandomize=True)
    @given(requests(client.application))
    @example(Request(method="POST", path="/api/v1/sweeps", body=b"[" * 100_000))
    @example(Request(method="POST", path="/api/v1/sweeps", body=b'{"name": ' + b"9" * 5000 + b"}"))
    @example(Request(method="POST", path="/api/v1/sweeps", body=b'"\\ud800"'))
    @example(Request(method="POST", path="/api/v1/sweeps", body=b"\xff", content_type=TOML_TYPE))
    @example(Request(method="POST", path="/sweeps", body=b"%ff=%00", content_type=FORM_TYPE))
    @example(Request(method="POST", path="/data/import", body=b"--x\r\n", content_type=PARTS_TYPE))
    @example(Request(method="GET", path="/jobs/%00"))
    @example(Request(method="GET", path="/sweeps/%ED%A0%80"))
    @example(Request(method="GET", path="/sweeps/" + "9" * 5000))
    @example(Request(method="GET", path="/api/v1/jobs", query="cursor=%ff&limit=%D9%A3"))
    @example(Request(method="GET", path="/", header=("If-None-Match", '"' * 9)))
    @example(Request(method="GET", path="/", header=("Host", "[")))
    @example(Request(method="GET", path="/static/style.css", header=("Range", "bytes=9-1")))
    @example(Request(method="GET", path="/metrics", header=("Authorization", "Basic \xe9:")))
    def ask(request: Request) -> None:
        answer = client.open(
            request.path,
            method=request.method,
            query_string=request.query,
            data=request.body.replace(CSRF.encode(), csrf.encode()),
            content_type=request.content_type,
            headers=[request.header],
        )
        answer.close()
        is_well = answer.status_code < 500 or request.path == MAY_BE_UNREADY
        assert is_well, f"{answer.status}: {request}"
        found = content(engine)
        assert found == kept[-1] or answer.status_code < 400, f"{answer.status}: {request}"
        kept[:] = [found]

    ask()
