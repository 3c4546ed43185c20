"""The compose file brings up a farm that runs the demo's sweep, and has it after down and up.

By itself: `make compose`. It needs root, the Debian packages that `tests.compose.podman.missing`
names, a package index and a mirror of Debian, and takes half an hour on two cores, most of it for
TensorFlow's packages. FARM_COMPOSE_CACHE names a folder in which it keeps images and packages for
the next time; without one nothing stays.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from farm.cli.start.demo import demo_sweep
from tests.compose.farm import SERVERS, ComposeFarm, new_farm, until
from tests.compose.images import ROOT, TARGETS, build, gather_wheels, make_stand_ins
from tests.compose.podman import Podman, missing, own_podman

pytestmark = [pytest.mark.compose, pytest.mark.timeout(5400)]

_AGENTS = 2
_DEMO = ROOT / "farm" / "cli" / "demo.toml"
_SWEEP_LIMIT_S = 1800.0
_BUILD_TOOLS = "gcc cc g++ c++ cpp ld as make cmake ninja cargo rustc go git hatch"


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if packages := missing():
        pytest.skip(f"needs Debian's packages: apt install {' '.join(packages)}")
    if importlib.util.find_spec("podman_compose") is None:
        pytest.skip("needs podman-compose: pip install -e '.[compose]'")
    with ExitStack() as ends:
        # Paths of sockets are short, so it is not pytest's own folder.
        folder = Path(tempfile.mkdtemp(prefix="farm-compose-"))
        ends.callback(shutil.rmtree, folder)
        cache = Path(os.environ.get("FARM_COMPOSE_CACHE") or folder / "cache").absolute()
        cache.mkdir(parents=True, exist_ok=True)
        podman = ends.enter_context(own_podman(folder, storage=cache / "images"))
        make_stand_ins(podman)
        gather_wheels(cache / "wheels")
        build(podman, wheels=cache / "wheels")
        yield podman


@pytest.fixture(scope="module")
def farm(podman: Podman) -> ComposeFarm:
    farm = new_farm(podman)
    farm.up(agents=_AGENTS)
    return farm


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_has_nothing_to_build_with(podman: Podman, target: str) -> None:
    script = f"for tool in {_BUILD_TOOLS}; do command -v $tool; done; ls -d /opt/benchfarm/bin/pip*"
    found = podman.run(
        *("run", "--rm", "--network=none", "--entrypoint=sh", f"benchfarm-{target}"),
        *("-c", f"{script}; find / -xdev -name '*.h' -path '/usr/include/*'; id -u"),
    )

    # Nothing but the user, who is not root.
    assert found.split() == ["10001"]


def test_the_demos_sweep_is_measured_and_outlives_its_containers(farm: ComposeFarm) -> None:
    assert not _command_lines_with(farm.passwords)
    names = _await_agents(farm, count=_AGENTS)
    job_count = sum(demo_sweep(_AGENTS)["repetitions"] for _ in demo_sweep(_AGENTS)["case"])

    farm.farm("submit", "--wait", "/dev/stdin", stdin=_DEMO.read_text(), limit_s=_SWEEP_LIMIT_S)

    jobs = farm.json("jobs")["items"]
    print(farm.farm("status", "demo"))
    assert [job["state"] for job in jobs] == ["succeeded"] * job_count
    before = _table(farm)

    farm.down()
    assert not any(farm.containers(service) for service in (*SERVERS, "agent"))
    farm.up(agents=2 * _AGENTS)

    assert farm.json("jobs")["items"] == jobs
    assert _table(farm) == before
    # Those that there were, and as many beside them.
    assert set(names) < set(_await_agents(farm, count=2 * _AGENTS))
    farm.farm("submit", "--wait", "/dev/stdin", stdin=_one_job(), limit_s=_SWEEP_LIMIT_S)
    after = farm.json("jobs", "--sweep", "after")["items"]
    assert [job["state"] for job in after] == ["succeeded"]


def _await_agents(farm: ComposeFarm, *, count: int) -> list[str]:
    """Wait until that many agents are alive, and return their names."""
    until(lambda: len(farm.live_agents()) == count, what=lambda: farm.logs("agent"))
    return farm.live_agents()


def _table(farm: ComposeFarm) -> str:
    return farm.farm("export", "demo", "--format", "csv")


def _one_job() -> str:
    case = 'model = "small_cnn"\ndataset = "digits"\nstrategy = "single"\nworld_size = 1\n'
    return f'name = "after"\n[[case]]\n{case}global_batch_size = 32\nsteps = 20\n'


def _command_lines_with(words: tuple[str, ...]) -> list[str]:
    """Return the command lines of this machine that one of the words is in."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_text(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if any(word in line for word in words):
            found.append(line)
    return found
