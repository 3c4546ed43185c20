"""Which versions of a user's training script were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.configuration.scripts import (
    BUNDLE_PREFIX,
    PREFIX,
    parameters_of,
    script_of,
    version_of,
)
from farm.errors import InvalidSpec, NotFound
from farm.store.result_tables import MEASUREMENTS, MeasurementRow

_Command: TypeAlias = tuple[str, str | None]  # a model and its data set


@dataclass(frozen=True, slots=True)
class MeasuredScript:
    """The workload of a script. `others`: versions that were measured, too, the newest first."""

    model: str
    dataset: str | None
    others: tuple[str, ...]


def measured_script(
    session: Session,
    *,
    origin: str,
    script: str,
    sha256: str | None = None,
    parameters: Sequence[str] = (),
) -> MeasuredScript:
    """Return the measured workload of a script: its newest version, or the given one.

    `script`: the file's name, or its path in the bundle. The folder may be left out, or be another
    where no other script has this name. `sha256`: as many first digits as tell
    versions apart. `parameters`: such as "hidden=256", where several values were measured.

    Raises:
        NotFound: it was not measured, or not in that version.
        InvalidSpec: several scripts of this name, or several commands of the version were measured;
            names them.
    """
    measured = [(m, d) for m, d in session.execute(_newest_first(origin)).all() if m is not None]
    names = {script_of(model) or "" for model, _ in measured}
    alike = {name for name in names if name.rpartition("/")[2] == script.rpartition("/")[2]}
    chosen = {script} & alike or alike
    if not chosen:
        raise NotFound(f"nothing is measured of a script {script!r} by the origin {origin!r}")
    if len(chosen) > 1:
        raise InvalidSpec("script", script, f"one of {', '.join(sorted(chosen))}")
    found = [one for one in measured if script_of(one[0]) in chosen]
    versions = list(dict.fromkeys(version_of(model) for model, _ in found))
    wanted = versions[0]
    if sha256 is not None:
        # A version has the first 12 digits, and the user may have more or fewer of them.
        agreeing = [v for v in versions if v and (v.startswith(sha256) or sha256.startswith(v))]
        if not agreeing:
            shown = _shown(versions)
            raise NotFound(f"{script} was not measured with sha256 {sha256!r}, but: {shown}")
        wanted = agreeing[0]
    commands = [one for one in found if version_of(one[0]) == wanted]
    for text in parameters:
        commands = _having(text, commands)
    if len(commands) > 1:
        raise _ambiguous(commands)
    [(model, dataset)] = commands
    others = tuple(version for version in versions if version != wanted)
    return MeasuredScript(model=model, dataset=dataset, others=others)


def _having(text: str, commands: Sequence[_Command]) -> list[_Command]:
    """Return the commands that were given this value of a parameter."""
    name, _, value = text.partition("=")
    given = [(one, parameters_of(one[0])) for one in commands]
    found = [one for one, known in given if name in known and _is_same(known[name], value)]
    if not found:
        measured = sorted({f"{n}={v}" for _, known in given for n, v in known.items()})
        expected = f"one of {', '.join(measured)}" if measured else "none: this version has none"
        raise InvalidSpec("parameter", text, expected)
    return found


def _is_same(text: str, other: str) -> bool:
    """Whether two values are one, as 1e-3 and 0.001 are."""
    try:
        return text == other or float(text) == float(other)
    except ValueError:
        return False


def _ambiguous(commands: Sequence[_Command]) -> InvalidSpec:
    """Say what would tell the commands apart: values of parameters, or else a whole command."""
    values: dict[str, set[str | None]] = {}
    given = [parameters_of(model) for model, _ in commands]
    for name in sorted({name for known in given for name in known}):
        values[name] = {known.get(name) for known in given}
    several = {name: found for name, found in values.items() if len(found) > 1}
    if several:
        shown = "; ".join(
            " or ".join(sorted(f"{name}={value}" for value in found if value is not None))
            for name, found in several.items()
        )
        return InvalidSpec("parameter", None, shown)
    shown = "; ".join(f"{model} ({dataset})" for model, dataset in sorted(commands, key=str))
    return InvalidSpec("model", None, f"one of these commands: {shown}")


def others_warning(script: str, found: MeasuredScript) -> str | None:
    """Return a warning that other measured versions are ignored; None: there are none."""
    if not found.others:
        return None
    own = version_of(found.model) or "without a sum"
    return (
        f"{script}: this is of version {own}; others were measured and do not count: "
        f"{_shown(found.others)} (--script-sha256 asks for one)"
    )


def _shown(versions: Sequence[str]) -> str:
    return ", ".join(version or "one without a sum" for version in versions)


def _newest_first(origin: str) -> sa.Select[str | None, str | None]:
    model, dataset = MEASUREMENTS.model, MEASUREMENTS.dataset
    return (
        sa.select(model, dataset)
        .where(
            MeasurementRow.origin == origin,
            sa.or_(model.startswith(PREFIX), model.startswith(BUNDLE_PREFIX)),
        )
        .group_by(model, dataset)
        .order_by(sa.func.max(MeasurementRow.id).desc())
    )
