"""Start a farm in its strictest setting, attack it in every way, and say what refused each.

`python -m tests.attacks` takes half a minute and needs a Redis with TLS and a PostgreSQL.
`--write FILE` puts the table between the two markers of a Markdown page. Status 1: one succeeded.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.attacks import ATTACKS
from tests.attacks.contract import Attack, Succeeded, shown
from tests.attacks.table import TABLE, table, write
from tests.e2e.security.strict_farm import StrictFarm, strict_farm, what_lacks


def main(argv: Sequence[str] | None = None) -> int:
    """Return 1 if an attack succeeded."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page")
    given = parser.parse_args(argv)
    page: Path | None = given.write
    if page and not TABLE.is_in(page):
        parser.error(f"--write {page}: expected a page with the two markers of the attacks")
    if (lack := what_lacks()) is not None:
        parser.error(f"this machine cannot run such a farm: {lack}")
    with tempfile.TemporaryDirectory() as folder, strict_farm(Path(folder)) as farm:
        outcomes = [(attack, tried(attack, farm)) for attack in ATTACKS]
    print("\n".join(table(outcomes)))
    if page:
        write(page, outcomes, on=dt.datetime.now(dt.UTC).date())
    return int(any(words is None for _, words in outcomes))


def tried(attack: Attack, farm: StrictFarm) -> str | None:
    """Return what refused an attack; None, and say so, where nothing did."""
    try:
        return shown(attack.act(farm), farm)
    except Succeeded as error:
        print(f"{attack.position.value}: {attack.tried}: {error}", file=sys.stderr)
        return None


if __name__ == "__main__":
    sys.exit(main())
