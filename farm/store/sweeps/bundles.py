"""Stores the bundles of training scripts, and reads them in pieces for agents."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterable

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from farm.configuration.bundle import ScriptBundle, read_archive
from farm.configuration.scripts import BUNDLE_PREFIX, VERSION_DIGITS, bundle_of, script_of
from farm.errors import InvalidSpec
from farm.messages.agents import WantedPiece
from farm.messages.commands import BundlePiece
from farm.store.tables import BundlePieceRow, BundleRow, JobRow
from farm.text.display import byte_count

# In base64 within base64, as a message has it, 0.94 MB.
PIECE_BYTES = 2**19
MOST_STORED_BYTES = 10**9
# Longer than anybody takes from sending a bundle to submitting the sweep that names it.
UNUSED_FOR = dt.timedelta(days=1)


def add_bundle(session: Session, bundle: ScriptBundle, *, now: dt.datetime) -> None:
    """Store a bundle once. Bundles that no job names are removed after a day.

    Raises:
        InvalidSpec: the store has as many as it may have, or one that begins with the same digits.
    """
    digits = bundle.sha256[:VERSION_DIGITS]
    known = _bundle(session, digits)
    if known is not None and known.sha256 == bundle.sha256:
        known.added_at = now
        return
    if known is not None:
        raise InvalidSpec("bundle_sha256", bundle.sha256, f"other first digits than {known.sha256}")
    remove_unused(session, now=now)
    archive = bundle.archive
    held = int(session.scalar(select(func.sum(BundleRow.byte_count))) or 0)
    if held + len(archive) > MOST_STORED_BYTES:
        expected = (
            f"at most {byte_count(MOST_STORED_BYTES)} of bundles in the store, which has "
            f"{byte_count(held)}: `farm db prune` removes those whose jobs are gone"
        )
        raise InvalidSpec("bundle", byte_count(len(archive)), expected)
    pieces = [archive[at : at + PIECE_BYTES] for at in range(0, len(archive), PIECE_BYTES)]
    row = BundleRow(
        sha256=bundle.sha256, byte_count=len(archive), piece_count=len(pieces), added_at=now
    )
    session.add(row)
    session.flush()
    session.add_all(
        BundlePieceRow(sha256=bundle.sha256, number=number, content=piece)
        for number, piece in enumerate(pieces)
    )


def check_bundles(session: Session, models: Iterable[str]) -> None:
    """Refuse the models of jobs whose bundle is not in the store.

    Raises:
        InvalidSpec: names the first bundle that is missing.
    """
    for model in dict.fromkeys(models):
        digits = bundle_of(model)
        if digits is not None and _bundle(session, digits) is None:
            expected = f"a bundle that was sent before, with {script_of(model)} in it"
            raise InvalidSpec("bundle_sha256", digits, expected)


def check_scripts(session: Session, models: Iterable[str]) -> None:
    """Refuse the models of jobs whose bundle, which is in the store, has no such script.

    Raises:
        InvalidSpec: names the first script that is missing.
    """
    scripts: dict[str, dict[str | None, None]] = {}
    for model in models:
        if (digits := bundle_of(model)) is not None:
            scripts.setdefault(digits, {})[script_of(model)] = None
    for digits, wanted in scripts.items():
        row = _bundle(session, digits)
        bundle = None if row is None else find_bundle(session, row.sha256)  # may have 20 MB
        for script in wanted:
            if bundle is not None and script not in bundle.files:
                there = [path for path in bundle.files if path.endswith(".py")]
                expected = f"a script of the bundle: {', '.join(there[:20]) or 'it has none'}"
                raise InvalidSpec("script", script, expected)


def find_bundle(session: Session, sha256: str) -> ScriptBundle | None:
    """Return a bundle with its files; None: the store has none of that name."""
    row = _bundle(session, sha256[:VERSION_DIGITS])
    if row is None or row.sha256 != sha256:
        return None
    pieces = (
        select(BundlePieceRow.content)
        .where(BundlePieceRow.sha256 == sha256)
        .order_by(BundlePieceRow.number)
    )
    return read_archive(b"".join(session.scalars(pieces)))


def bundle_piece(session: Session, wanted: WantedPiece) -> BundlePiece:
    """Return what to answer to an agent that wants a piece."""
    bundle = _bundle(session, wanted.bundle)
    piece = bundle and session.get(BundlePieceRow, (bundle.sha256, wanted.number))
    return BundlePiece(
        bundle=wanted.bundle,
        number=wanted.number,
        sha256=bundle.sha256 if bundle and piece else "",
        piece_count=bundle.piece_count if bundle and piece else 0,
        content=base64.b64encode(piece.content).decode() if piece else "",
    )


def remove_unused(session: Session, *, now: dt.datetime) -> int:
    """Remove the bundles that no job names and that came a day ago or earlier; return how many."""
    old = session.scalars(select(BundleRow).where(BundleRow.added_at < now - UNUSED_FOR)).all()
    if not old:
        return 0
    named = select(JobRow.model).where(JobRow.model.startswith(BUNDLE_PREFIX)).distinct()
    used = {bundle_of(model) for model in session.scalars(named)}
    unused = [row.sha256 for row in old if row.sha256[:VERSION_DIGITS] not in used]
    if unused:
        session.execute(delete(BundlePieceRow).where(BundlePieceRow.sha256.in_(unused)))
        session.execute(delete(BundleRow).where(BundleRow.sha256.in_(unused)))
    return len(unused)


def _bundle(session: Session, digits: str) -> BundleRow | None:
    if len(digits) != VERSION_DIGITS or not digits.isalnum():
        return None
    found = select(BundleRow).where(BundleRow.sha256.startswith(digits)).limit(1)
    return session.scalars(found).first()
