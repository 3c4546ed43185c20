"""Step time of a user's script through the farm, against the same script under torchrun.

The script is plain PyTorch with DistributedDataParallel and times its own steps. Runs through
`farm measure`, on a farm of two agents that is up all the while, and runs by hand take turns, ABBA
over pairs. Either way each rank is bound to a core of its own. A run's figure is the median of its
timed steps; of a farm's run it is taken twice: as the farm has stored it, and as the script itself
has timed the same steps, but the last, after which the farm holds it until counters are read. Steps
take some tens of milliseconds: with a core for each rank gloo's threads wait for the kernel's next
tick, so that steps of 4 ms are 8 ms in every other run, by hand as well.

Limits, with one rank and with two: the stored median within 1 % of the script's own, in each run;
the median ratio of stored to by hand at most 1.02.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import BenchmarkFigure, at_least, run_benchmark, say
from benchmarks.pairs import alternating, paired_ratio
from farm.embedded.redis import free_port
from farm.errors import FarmError
from farm.text.display import duration

PAIR_COUNT = 10
WORLD_SIZES = (1, 2)
RATIO_LIMIT, TIMER_LIMIT = 1.02, 0.01
_STEPS, _WARMUP_STEPS = 300, 20
_LIMIT_S = 300.0
_FARM = (sys.executable, "-m", "farm.cli.main")
_SCRIPT = f"""
import argparse, atexit, json, os, pathlib, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, required=True)
parser.add_argument("--timings", type=pathlib.Path, required=True)
given = parser.parse_args()
dist.init_process_group("gloo")
torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10)
)
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
images = torch.randn(given.batch_size, 1024)
labels = torch.randint(0, 10, (given.batch_size,))
ended_s = []
def save():
    if dist.get_rank() == 0:
        given.timings.write_text(json.dumps(ended_s))
atexit.register(save)
for _ in range(1 + {_WARMUP_STEPS} + {_STEPS}):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    try:
        optimizer.step()
    finally:  # the last step ends the script where there is a farm
        ended_s.append(time.perf_counter())
save()
os._exit(0)  # by hand gloo's threads abort one of some ten processes that end as others do
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=at_least(1), default=PAIR_COUNT, help="of each width")


def measure(given: argparse.Namespace) -> list[BenchmarkFigure]:
    """Measure one rank and two, pair by pair."""
    pair_count = 1 if given.quick else given.pairs
    figures = []
    with TemporaryDirectory() as folder:
        script = Path(folder) / "own" / "train.py"
        script.parent.mkdir()
        script.write_text(_SCRIPT)
        with _farm(Path(folder) / "home") as environment:
            for world_size in WORLD_SIZES:
                figures += _of_width(world_size, pair_count, script, environment)
    return figures


def _of_width(
    world_size: int, pair_count: int, script: Path, environment: dict[str, str]
) -> list[BenchmarkFigure]:
    stored, own, by_hand = [], [], []
    for is_ours_first in alternating(pair_count):
        for is_ours in (is_ours_first, not is_ours_first):
            if is_ours:
                stored_s, own_s = _through_farm(world_size, script, environment)
                stored.append(stored_s)
                own.append(own_s)
            else:
                by_hand.append(_by_hand(world_size, script))
        say(
            f"{world_size} ranks: stored {duration(stored[-1])}, by its own timer "
            f"{duration(own[-1])}, under torchrun {duration(by_hand[-1])}"
        )
    ratio = paired_ratio(stored, by_hand)
    worst = max(abs(ours / its - 1) for ours, its in zip(stored, own, strict=True))
    name = f"step time of a script, {world_size} {'rank' if world_size == 1 else 'ranks'}"
    return [
        BenchmarkFigure(
            name=name,
            unit="s",
            ours=statistics.median(stored),
            baseline=statistics.median(by_hand),
            against="under torchrun",
            ratio=ratio.median,
            limit=f"at most {RATIO_LIMIT}",
            reached=ratio.median <= RATIO_LIMIT,
            note=f"{ratio.pair_count} pairs, 95 %: {ratio.low:.3f} to {ratio.high:.3f}",
        ),
        BenchmarkFigure(
            name=f"{name}, worst run",
            unit="s",
            ours=statistics.median(stored),
            baseline=statistics.median(own),
            against="the script's own timer",
            ratio=1 + worst,
            limit=f"within {TIMER_LIMIT:.0%} in each run",
            reached=worst <= TIMER_LIMIT,
        ),
    ]


@contextmanager
def _farm(home: Path) -> Iterator[dict[str, str]]:
    """Run a farm of two agents; give the environment of commands that use it."""
    own = {"FARM_HOME": str(home), "FARM_WEB_PORT": str(free_port()), "FARM_NOISE_POLICY": "flag"}
    others = {k: v for k, v in os.environ.items() if not k.startswith(("FARM_", "AGENT_"))}
    environment = {**others, **own}
    with subprocess.Popen(
        [*_FARM, "up", "--agents", "2"], env=environment, stdout=subprocess.PIPE, text=True
    ) as farm:
        try:
            assert farm.stdout is not None
            if not any(line.startswith("Dashboard") for line in farm.stdout):
                raise FarmError("the farm did not start")
            yield environment
        finally:
            farm.send_signal(signal.SIGTERM)
            farm.wait(timeout=60)


def _through_farm(
    world_size: int, script: Path, environment: dict[str, str]
) -> tuple[float, float]:
    """Return the median step as the farm has stored it, and by the script's own timer."""
    timings = script.with_name("timings.json")
    options = (
        *("--world-size", str(world_size), "--global-batch-size", "128"),
        *("--steps", str(_STEPS), "--warmup-steps", str(_WARMUP_STEPS), "--json"),
    )
    words = ("--batch-size", "{per_rank_batch_size}", "--timings", str(timings))
    done = _run([*_FARM, "measure", *options, "--", "python", str(script), *words], environment)
    [job] = json.loads(done)["jobs"]
    return job["step_time_s"], _median_s(timings)


def _by_hand(world_size: int, script: Path) -> float:
    """Return the median step by the script's own timer, one rank a core."""
    timings = script.with_name("by_hand.json")
    words = f"--batch-size {128 // world_size} --timings {timings}"
    rank = f"exec taskset -c $LOCAL_RANK {sys.executable} {script} {words}"
    starter = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    _run(
        [*starter, f"--nproc-per-node={world_size}", "--no-python", "bash", "-c", rank],
        {**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return _median_s(timings)


def _run(command: Sequence[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    if done.returncode:
        raise FarmError(f"{' '.join(command[:6])} ...: {done.stderr[-1000:]}")
    return done.stdout


def _median_s(timings: Path) -> float:
    ended_s = json.loads(timings.read_text())[: 1 + _WARMUP_STEPS + _STEPS]
    timings.unlink()
    times_s: list[float] = [b - a for a, b in itertools.pairwise(ended_s)]
    return statistics.median(times_s[_WARMUP_STEPS:-1])


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure, options=add_options))
