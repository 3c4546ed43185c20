"""How containers that are all alike become agents that are not: a slot and a key for each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

CONTAINERS = Path(__file__).parents[3] / "deploy" / "containers"
# Says who it is, and is an agent until it is told to end.
AGENT = ("sh", "-c", 'echo "$AGENT_ID|$AGENT_CPUS|$AGENT_STATE_DIR|$AGENT_KEY_FILE"; read line')
_LIMIT_S = 120

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def slots(tmp_path: Path) -> Path:
    for number in (1, 2, 3):
        folder = tmp_path / f"agent-{number}"
        folder.mkdir()
        (folder / "key").write_text("a key")
    return tmp_path


@pytest.fixture
def start(slots: Path) -> Iterator[Start]:
    with ExitStack() as ends:

        def begin(**variables: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [str(CONTAINERS / "agent-slot"), *AGENT],
                env={**_environment(), "AGENT_SLOTS": str(slots), **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            ends.callback(process.communicate, timeout=_LIMIT_S)
            return process

        yield begin


def _environment() -> dict[str, str]:
    """Return one in which `python` and `farm` are this environment's, as in an image."""
    return {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def _printed_fields(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().strip().split("|")


def test_each_container_is_another_agent(start: Start, slots: Path) -> None:
    agents = [_printed_fields(start()) for _ in range(3)]

    assert [name for name, *_ in agents] == ["agent-1", "agent-2", "agent-3"]
    for name, _, state, key in agents:
        assert (state, key) == (f"{slots}/{name}/state", f"{slots}/{name}/key")


def test_a_slot_is_free_as_soon_as_its_program_has_ended(start: Start) -> None:
    first = start()
    assert _printed_fields(first)[0] == "agent-1"
    assert _printed_fields(start())[0] == "agent-2"

    first.communicate(timeout=_LIMIT_S)

    assert _printed_fields(start())[0] == "agent-1"


def test_one_too_many_is_told_what_to_do(start: Start) -> None:
    for _ in range(3):
        _printed_fields(start())
    late = start()
    _, error = late.communicate(timeout=_LIMIT_S)

    assert late.returncode == 1
    assert "got 3, all taken: raise AGENT_KEYS" in error


def test_agents_share_no_core_until_there_are_more_agents_than_cores(start: Start) -> None:
    cores = sorted(os.sched_getaffinity(0))
    cpus = [_printed_fields(start())[1] for _ in range(3)]

    assert cpus == [str(cores[number % len(cores)]) for number in range(3)]


def test_each_gets_as_many_cores_as_were_asked_for(start: Start) -> None:
    cores = sorted(os.sched_getaffinity(0))

    assert _printed_fields(start(AGENT_CORES=str(len(cores))))[1] == ",".join(map(str, cores))

    for wrong in (len(cores) + 1, 0):
        refused = start(AGENT_CORES=str(wrong))
        _, error = refused.communicate(timeout=_LIMIT_S)
        assert refused.returncode == 2
        assert f"AGENT_CORES: expected 1 to {len(cores)}, got {wrong}" in error


def test_every_agent_gets_a_key_and_keeps_it_unless_it_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    environment = {
        **_environment(),
        "FARM_HOME": str(tmp_path),
        "FARM_SIGNING_KEY_FILE": str(tmp_path / "signing.key"),
    }

    def run(*command: str) -> str:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=True
        )
        return done.stdout

    def issue(count: int) -> list[str]:
        run(str(CONTAINERS / "issue-keys"), str(folder), str(count))
        return [(folder / f"agent-{number + 1}" / "key").read_text() for number in range(count)]

    run("farm", "db", "upgrade")
    first, second = issue(2)
    assert len({first, second}) == 2
    assert all(len(key.split()) == 1 for key in (first, second))
    assert (folder / "agent-1" / "key").stat().st_mode & 0o077 == 0

    (folder / "agent-2" / "key").unlink()
    kept, changed = issue(2)
    assert kept == first
    assert changed not in (first, second)
    assert [line.split()[:3] for line in run("farm", "agent", "list").splitlines()[1:]] == [
        ["agent-1", "1", "counts"],
        ["agent-2", "2", "counts"],
    ]
