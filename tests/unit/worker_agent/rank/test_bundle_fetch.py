"""How an agent brings a script's bundle from the server, piece by piece."""

from __future__ import annotations

import base64
import hashlib

import pytest

from farm.messages.commands import BundlePiece, StartRank
from tests.factories import job_spec
from worker_agent.rank.bundles import BundleFetch, BundleRefused

ARCHIVE = b"0123456789"
SHA256 = hashlib.sha256(ARCHIVE).hexdigest()
BUNDLE = SHA256[:12]


def order(token: int = 1) -> StartRank:
    return StartRank(
        token=token, rank=0, agent_count=1, roles=("worker",), spec=job_spec(), prepare_timeout_s=60
    )


def piece(number: int, *, bundle: str = BUNDLE, sha256: str = SHA256) -> BundlePiece:
    content = base64.b64encode(ARCHIVE[4 * number : 4 * number + 4]).decode()
    return BundlePiece(bundle=bundle, number=number, sha256=sha256, piece_count=3, content=content)


@pytest.fixture
def fetch() -> BundleFetch:
    fetch = BundleFetch()
    fetch.begin(order(), BUNDLE)
    return fetch


def wanted(fetch: BundleFetch) -> int:
    assert fetch.wanted is not None
    return fetch.wanted.number


def test_pieces_are_asked_for_in_turn_and_copies_and_late_ones_passed_over(
    fetch: BundleFetch,
) -> None:
    assert fetch.wanted is not None
    assert fetch.wanted.bundle == BUNDLE
    for number, next_number in ((2, 0), (0, 1), (0, 1), (2, 1), (1, 2)):
        assert fetch.take(piece(number)) is None
        assert wanted(fetch) == next_number
    assert fetch.take(piece(0, bundle="0" * 12)) is None
    assert fetch.take(piece(2)) == ARCHIVE


def test_the_same_order_again_goes_on_and_another_bundle_begins_anew(fetch: BundleFetch) -> None:
    fetch.take(piece(0))
    fetch.begin(order(), BUNDLE)
    assert wanted(fetch) == 1
    fetch.begin(order(2), "0" * 12)
    assert wanted(fetch) == 0
    fetch.end()
    assert fetch.wanted is None
    assert fetch.take(piece(0)) is None


def test_a_bundle_that_the_server_has_not_is_refused(fetch: BundleFetch) -> None:
    absent = BundlePiece(bundle=BUNDLE, number=0, sha256="", piece_count=0, content="")
    with pytest.raises(BundleRefused, match="has no bundle"):
        fetch.take(absent)


def test_other_content_than_was_asked_for_is_refused(fetch: BundleFetch) -> None:
    other = hashlib.sha256(b"other").hexdigest()
    for number in (0, 1):
        fetch.take(piece(number, sha256=other))
    with pytest.raises(BundleRefused, match="another sha256"):
        fetch.take(piece(2, sha256=other))


def test_a_piece_that_is_no_base64_and_a_bundle_without_end_are_refused(fetch: BundleFetch) -> None:
    odd = BundlePiece(bundle=BUNDLE, number=0, sha256=SHA256, piece_count=3, content="\u00e9!")
    with pytest.raises(BundleRefused, match="base64"):
        fetch.take(odd)
    content = base64.b64encode(bytes(8 * 10**6)).decode()
    pieces = [
        BundlePiece(bundle=BUNDLE, number=number, sha256=SHA256, piece_count=9, content=content)
        for number in range(3)
    ]
    assert [fetch.take(one) for one in pieces[:2]] == [None, None]
    with pytest.raises(BundleRefused, match="longer than"):
        fetch.take(pieces[2])
