"""Bundles of scripts in the store: once each, by pieces, and gone when no job names them."""

from __future__ import annotations

import base64
import datetime as dt

import pytest
import sqlalchemy as sa

from farm.configuration.bundle import ScriptBundle
from farm.errors import InvalidSpec
from farm.messages.agents import WantedPiece
from farm.store.engine import reading, writing
from farm.store.sweeps import bundles
from farm.store.sweeps.bundles import add_bundle, bundle_piece, remove_unused
from farm.store.tables import BundleRow
from farm.submission import plan, submit
from tests.factories import NOW

BUNDLE = ScriptBundle({"train.py": bytes(range(256)) * 10, "net.py": b"x"})
CASE = {
    **{"script": "train.py", "bundle_sha256": BUNDLE.sha256, "steps": 5},
    **{"world_size": 1, "global_batch_size": 64},
}
SWEEP = {"name": "mine", "case": [CASE]}
LATER = NOW + dt.timedelta(days=2)


def names(engine: sa.Engine) -> list[str]:
    with reading(engine) as session:
        return sorted(session.scalars(sa.select(BundleRow.sha256)))


def test_an_archive_comes_back_by_pieces(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "PIECE_BYTES", 1000)
    for _ in range(2):
        with writing(engine) as session:
            add_bundle(session, BUNDLE, now=NOW)
    got = b""
    for number in range(3):
        with reading(engine) as session:
            wanted = WantedPiece(bundle=BUNDLE.sha256[:12], number=number)
            piece = bundle_piece(session, wanted)
        assert (piece.sha256, piece.piece_count) == (BUNDLE.sha256, 3)
        got += base64.b64decode(piece.content)
    assert got == BUNDLE.archive


@pytest.mark.parametrize(
    "wanted",
    [
        WantedPiece(bundle=BUNDLE.sha256[:12], number=9),
        WantedPiece(bundle="0" * 12, number=0),
        WantedPiece(bundle="%", number=0),
        WantedPiece(bundle="", number=0),
        WantedPiece(bundle=BUNDLE.sha256, number=0),
    ],
)
def test_what_is_not_there_has_no_pieces(engine: sa.Engine, wanted: WantedPiece) -> None:
    with writing(engine) as session:
        add_bundle(session, BUNDLE, now=NOW)
    with reading(engine) as session:
        piece = bundle_piece(session, wanted)
    assert (piece.piece_count, piece.content) == (0, "")


def test_a_sweep_whose_bundle_nobody_has_sent_is_refused(engine: sa.Engine) -> None:
    planned = plan(SWEEP)
    with pytest.raises(InvalidSpec, match="bundle_sha256"), writing(engine) as session:
        submit(session, planned, now=NOW)
    with writing(engine) as session:
        add_bundle(session, BUNDLE, now=NOW)
        assert submit(session, planned, now=NOW).job_count == 1


def test_what_no_job_names_goes_after_a_day(engine: sa.Engine) -> None:
    unused = ScriptBundle({"x.py": b""})
    with writing(engine) as session:
        add_bundle(session, BUNDLE, now=NOW)
        add_bundle(session, unused, now=NOW)
        submit(session, plan(SWEEP), now=NOW)
        assert remove_unused(session, now=NOW + dt.timedelta(hours=1)) == 0
    with writing(engine) as session:
        add_bundle(session, ScriptBundle({"y.py": b""}), now=LATER)
    assert len(names(engine)) == 2
    assert unused.sha256 not in names(engine)


def test_the_store_holds_no_more_than_it_may(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "MOST_STORED_BYTES", len(BUNDLE.archive) + 10)
    with writing(engine) as session:
        add_bundle(session, BUNDLE, now=NOW)
    other = ScriptBundle({"train.py": b"1"})
    with pytest.raises(InvalidSpec, match="farm db prune"), writing(engine) as session:
        add_bundle(session, other, now=NOW)
    with writing(engine) as session:
        add_bundle(session, other, now=LATER)
    assert names(engine) == [other.sha256]


def test_two_bundles_with_the_same_first_digits_are_not_mixed_up(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ScriptBundle({"train.py": b"evil"})
    monkeypatch.setitem(vars(other), "sha256", BUNDLE.sha256[:12] + "0" * 52)
    with writing(engine) as session:
        add_bundle(session, BUNDLE, now=NOW)
    with pytest.raises(InvalidSpec, match="other first digits"), writing(engine) as session:
        add_bundle(session, other, now=NOW)
