"""What the client may ask is what the API's document says."""

from __future__ import annotations

from pathlib import Path

from tests.client_queries import PATH, api_document, queries_module

ROOT = Path(__file__).parents[3]


def test_the_queries_of_the_client_are_those_of_the_api() -> None:
    expected = queries_module(api_document())
    assert (ROOT / PATH).read_text() == expected, "run `python -m tests.document_tables`"
