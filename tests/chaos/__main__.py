"""Let faults strike a farm of real processes, and see that it keeps its promises: `make chaos`.

The schedule is drawn from the seed, and printed; the same seed has the same faults in the same
order again. `--write FILE` puts the table between the two markers of a Markdown page.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figures import stopping_once
from tests.chaos.campaign import DRAIN_LIMIT_S, STUCK_S, Campaign, Interrupted
from tests.chaos.farm import Trainers, chaos_farm
from tests.chaos.faults import FAULTS
from tests.chaos.faults.contract import Fault
from tests.chaos.outcome import Outcome, merged
from tests.chaos.schedule import draw
from tests.chaos.table import TABLE, slow_lines, table, write
from tests.services.postgres_server import PostgresServer

STRIKES_EACH = 30  # between two looks at everything
MOST_BROKEN = 5  # a campaign goes on until then, to see more than what broke first
_SEEDS_APART = 1000


def main(argv: Sequence[str] | None = None) -> int:
    """Return 1 if it was stopped, a promise broken, or a recovery longer than its limit."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=1000, metavar="N", help="how many strike")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--farms", type=int, default=1, metavar="N", help="struck side by side")
    parser.add_argument(
        "--trainers",
        type=Trainers,
        choices=list(Trainers),
        default=Trainers.FAKE,
        help="real ones are of 4 agents; script: a script of a user's own, which starts children",
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="this kind; more than once")
    parser.add_argument("--list", action="store_true", help="say which kinds there are, and end")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the logs stay")
    given = parser.parse_args(argv)
    if given.list:
        print("\n".join(f"{fault.name}: {fault.does}" for fault in FAULTS))
        return 0
    if given.write and not TABLE.is_in(given.write):
        parser.error(f"--write {given.write}: expected a page with the campaign's two markers")
    unknown = sorted(set(given.only or ()) - {fault.name for fault in FAULTS})
    if unknown:
        parser.error(f"--only {', '.join(unknown)}: expected some of --list")
    faults = [f for f in at_hand(say) if given.only is None or f.name in given.only]
    if given.trainers is Trainers.SCRIPT:  # no script is forked from a template
        faults = [fault for fault in faults if not fault.name.startswith("template")]
    begun_s = time.monotonic()
    with stopping_once(), home(given.keep) as folder:
        outcome = run_beside(
            folder,
            faults,
            farm_count=given.farms,
            count=given.faults,
            seed=given.seed,
            say=say,
            trainers=given.trainers,
        )
    print("\n".join(table(outcome)))
    for text in outcome.broken:
        print(f"broken: {text}")
    late = slow_lines(outcome)
    for text in late:
        print(text)
    if given.write:
        took_s = time.monotonic() - begun_s
        options = f"--faults {given.faults} --farms {given.farms} --seed {given.seed}"
        command = f"python -m tests.chaos {options}"
        write(given.write, outcome, command=command, at=dt.datetime.now(dt.UTC), took_s=took_s)
    return int(bool(outcome.broken or late or len(outcome.strikes) < given.faults))


def run_beside(
    folder: Path,
    faults: Sequence[Fault],
    *,
    farm_count: int,
    count: int,
    seed: int,
    say: Callable[[str], None],
    trainers: Trainers = Trainers.FAKE,
) -> Outcome:
    """Run a campaign on several farms at once, each with its share of the faults and its own seed.

    They share nothing but the machine: most of a campaign is spent in waiting for leases to end.
    SIGINT and SIGTERM end it early.
    """
    outcomes = [Outcome() for _ in range(farm_count)]
    stopping = threading.Event()

    def share(number: int) -> None:
        own = folder / f"farm-{number}"
        own.mkdir()
        run(
            own,
            faults,
            count=count // farm_count + (number < count % farm_count),
            seed=seed + _SEEDS_APART * number,
            say=lambda text: say(f"[{number}] {text}"),
            number=number,
            outcome=outcomes[number],
            most_broken=MOST_BROKEN,
            stopping=stopping,
            trainers=trainers,
        )

    with ThreadPoolExecutor(farm_count) as pool:
        shares = [pool.submit(share, number) for number in range(farm_count)]
        try:
            wait(shares)
        except KeyboardInterrupt:
            say("stopped; what has struck until now counts")
        finally:
            stopping.set()  # and each farm is ended before the pool is
    for number, one in enumerate(shares):
        error = one.exception()
        if error is not None and not isinstance(error, Interrupted):
            say("".join(traceback.format_exception(error)))
            outcomes[number].broken.append(f"the campaign itself ended with {error!r}")
    return merged(outcomes)


def run(
    folder: Path,
    faults: Sequence[Fault],
    *,
    count: int,
    seed: int,
    say: Callable[[str], None],
    number: int = 0,
    outcome: Outcome | None = None,
    plant: str | None = None,
    most_broken: int = 1,
    stopping: threading.Event | None = None,
    trainers: Trainers = Trainers.FAKE,
    stuck_s: float = STUCK_S,
    drain_limit_s: float = DRAIN_LIMIT_S,
) -> Outcome:
    """Run a campaign on a farm of its own, the `number`th of several at once, and return `outcome`.

    It ends early after the schedule in which `most_broken` was reached.
    """
    outcome = Outcome() if outcome is None else outcome
    planned = draw(faults, count=count, seed=seed)
    # A crash of one that is careless would undo the last commits, and its tokens be drawn again.
    server = PostgresServer(is_durable=True)
    try:
        with chaos_farm(folder, server, plant=plant, number=number, trainers=trainers) as farm:
            campaign = Campaign(
                farm,
                outcome,
                say=say,
                stuck_s=stuck_s,
                drain_limit_s=drain_limit_s,
                stopping=stopping,
            )
            campaign.warm_up()
            for first in range(0, count, STRIKES_EACH):
                say(f"-- seed {seed}, from {first + 1} of {count}")
                if len(campaign.run(planned[first : first + STRIKES_EACH])) >= most_broken:
                    break
            return outcome
    finally:
        server.stop()


def at_hand(say: Callable[[str], None]) -> list[Fault]:
    """Return the faults that this machine can have, and say what it cannot."""
    for fault in FAULTS:
        if reason := fault.lacks():
            say(f"left out: {fault.name}: {reason}")
    return [fault for fault in FAULTS if fault.lacks() is None]


@contextmanager
def home(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="farm-chaos-") as folder:
        yield Path(folder)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
