"""`farm doctor`: checks the farm, and explains each problem and its remedy."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from farm.cli.output import json_option, print_json
from farm.cli.session import settings
from farm.diagnosis.finding import Finding, Level, doubt, unknown, worst, wrong
from farm.errors import FarmError, NotPermitted, Unreachable
from farm.processes.standard_output import unfiltered
from farm.text.log_text import one_line
from farm.text.plurals import counted

if TYPE_CHECKING:
    from farm.cli.operating.doctor_checks import Check
    from farm.settings.server import Settings

# Longer than every wait for a database's locks and for a broker that was dropped by a firewall.
_LIMIT_S = 15.0
_COLOURS = {Level.WELL: "green", Level.DOUBT: "yellow", Level.WRONG: "red", Level.UNKNOWN: "cyan"}
_NARROWEST = 40


@dataclass(frozen=True, slots=True)
class Checked:
    """A check and its findings."""

    name: str
    findings: Sequence[Finding]

    @property
    def level(self) -> Level:
        return worst(self.findings)


@click.command()
@click.option(
    "--limit-s",
    type=click.FloatRange(min=0.1, max=600),
    default=_LIMIT_S,
    show_default=True,
    help="Time limit for each answer.",
)
@json_option
def doctor(*, limit_s: float, as_json: bool) -> int:
    """Check every part of the farm, and print problems and their remedies.

    It changes nothing, and works when half of the farm is down. The exit status is 1 if something
    is wrong; doubtful findings are only printed. --json prints is_well and checks, each with its
    name, its level (well, unknown, doubt, wrong) and its findings.
    """
    from farm.cli.operating.doctor_checks import CHECKS

    checked = run_checks(CHECKS, settings(), limit_s=limit_s)
    is_well = worst(f for one in checked for f in one.findings) is not Level.WRONG
    if as_json:
        print_json(
            {
                "is_well": is_well,
                "checks": [
                    {"name": one.name, "level": one.level, "findings": list(one.findings)}
                    for one in checked
                ],
            }
        )
    else:
        for one in checked:
            _print(one)
        click.echo(_verdict(checked))
    return 0 if is_well else 1


def run_checks(checks: Sequence[Check], loaded: Settings, *, limit_s: float) -> list[Checked]:
    """Run all checks at once; those that have not ended after `limit_s` are abandoned."""
    found: dict[str, list[Finding]] = {}

    context = click.get_current_context(silent=True)

    def look(one: Check) -> None:
        # The command's context says which settings were given, and each thread has its own.
        with nullcontext() if context is None else context.scope(cleanup=False):
            found[one.name] = _findings(one, loaded)

    threads = [
        threading.Thread(target=look, args=(one,), name=one.name, daemon=True) for one in checks
    ]
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=max(0.0, deadline - time.monotonic()))
    return [Checked(one.name, found.get(one.name) or [_unanswered(one, limit_s)]) for one in checks]


def _findings(one: Check, loaded: Settings) -> list[Finding]:
    try:
        return one.look(loaded)
    except Unreachable as error:
        what, remedy = _parts(str(error))
        return [unknown(f"is not known: see {one.needs}") if one.needs else wrong(what, remedy)]
    except NotPermitted as error:
        return [doubt(*_parts(str(error)))]
    except FarmError as error:
        return [wrong(str(error), "correct that")]
    except Exception as error:
        # Whatever is broken there, the other checks are still worth reading.
        what = f"the check itself failed: {type(error).__name__}: {error}"
        return [wrong(" ".join(what.split())[:500], "this is a bug: please report it")]


def _unanswered(one: Check, limit_s: float) -> Finding:
    what = f"there was no answer within {limit_s:g} s"
    if one.needs:
        return unknown(f"{what}: see {one.needs}")
    return wrong(what, "see whether it hangs: a disk, a lock, or a firewall that drops packets")


def _parts(message: str) -> tuple[str, str]:
    """Split what is wrong from what to do, which our errors say one after the other."""
    # The last one, since what others are quoted with may hold such words too.
    parts = re.fullmatch(r"(.*)(?:; |: )((?:check|start|run|run as|grant|a newer) .*)", message)
    return (parts[1], parts[2]) if parts else (message, "start it")


def _print(one: Checked) -> None:
    for place, finding in enumerate(one.findings):
        mark = click.style(f"{finding.level.value:<8}", fg=_COLOURS[finding.level], bold=True)
        name = one.name if place == 0 else ""
        lines = _wrapped(one_line(finding.what))
        if finding.remedy is not None:
            first, *more = _wrapped(one_line(finding.remedy))
            lines += [f"-> {first}", *(f"   {line}" for line in more)]
        click.echo(mark, nl=False, file=unfiltered(sys.stdout))
        click.echo(f"{name:<14}{lines[0]}")
        for line in lines[1:]:
            click.echo(f"{'':<22}{line}")


def _wrapped(text: str) -> list[str]:
    """Break a text for a terminal; into a pipe it stays one line, to be searched."""
    if not sys.stdout.isatty():
        return [text]
    width = max(_NARROWEST, shutil.get_terminal_size().columns - 26)
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def _verdict(checked: Sequence[Checked]) -> str:
    levels = [finding.level for one in checked for finding in one.findings]
    bad, doubtful = levels.count(Level.WRONG), levels.count(Level.DOUBT)
    if not bad and not doubtful:
        hidden = levels.count(Level.UNKNOWN)
        return "Nothing is wrong." if not hidden else "Nothing is known to be wrong."
    parts = [f"{counted(bad, 'thing')} wrong"] if bad else []
    parts += [f"{doubtful} to look at"] if doubtful else []
    return f"{', '.join(parts)}."
