"""A lab's beginning and end: nothing of it stays, however its owner ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from farm.cli.main import main
from farm.errors import FarmError
from farm.lab.lab import Lab
from farm.lab.slots import Slot, claim_slot, hold
from farm.lab.system import interfaces, namespaces, processes_in
from farm.lab.wirefilter import LINKS
from tests.e2e.live_farm import wait_until
from tests.machine.namespaces import two_hosts

OWNER = textwrap.dedent("""
    import sys, time
    from farm.lab.lab import Lab
    with Lab(hosts=2) as lab:
        lab.popen(lab.hosts[0], ["sleep", "600"])
        print(lab.slot.prefix, *lab.wire_pids().values(), flush=True)
        time.sleep(600)
""")


def traces(prefix: str) -> list[str]:
    """Whatever bears the lab's name."""
    return [
        *namespaces(prefix),
        *interfaces(prefix),
        *(link.name for link in LINKS.glob(f"{prefix}*")),
    ]


def living(pids: Iterable[int]) -> list[int]:
    """Those that still run; a zombie is its parent's affair."""
    return [pid for pid in pids if psutil.pid_exists(pid) and not is_zombie(pid)]


def is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True  # gone altogether


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[str]]:
    """A process that has a lab, and says so on a line."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def first_line(owner: subprocess.Popen[str]) -> tuple[str, list[int]]:
    assert owner.stdout is not None
    prefix, *pids = owner.stdout.readline().split()
    return prefix, [int(pid) for pid in pids]


def watchdog_of(owner: subprocess.Popen[str]) -> psutil.Process:
    children = psutil.Process(owner.pid).children()
    [watchdog] = [child for child in children if "farm.lab.watchdog" in child.cmdline()]
    return watchdog


def test_a_lab_leaves_nothing() -> None:
    with Lab(hosts=3) as lab:
        prefix, pids = lab.slot.prefix, lab.wire_pids().values()
        forgotten = lab.popen(lab.hosts[2], ["sleep", "600"])
        assert len(traces(prefix)) == (3 + 1) + (3 + 1) + 3

    assert traces(prefix) == []
    assert living(pids) == []
    assert forgotten.returncode == -signal.SIGKILL
    assert not lab.slot.folder.exists()


def test_a_lab_leaves_nothing_after_an_error_within() -> None:
    class Oops(Exception):
        pass

    with pytest.raises(Oops), Lab(hosts=1) as lab:
        raise Oops

    assert traces(lab.slot.prefix) == []


def test_a_lab_that_cannot_begin_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Lab(hosts=2)
    monkeypatch.setattr("farm.lab.lab.LINKS", Path("/nowhere"))

    with pytest.raises(FarmError, match=r"the lab's bfl.* did not start: .*No such file"):
        broken.__enter__()

    assert traces(broken.slot.prefix) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_owners_death_removes_its_lab(
    owner: subprocess.Popen[str], number: signal.Signals
) -> None:
    prefix, pids = first_line(owner)
    assert traces(prefix)

    owner.send_signal(number)
    owner.wait(timeout=60)

    wait_until(lambda: not traces(prefix), "nothing of the lab is left")
    wait_until(lambda: not living(pids), "no wire is left")


def test_the_next_lab_removes_what_a_killed_owner_and_its_watchdog_left(
    owner: subprocess.Popen[str],
) -> None:
    prefix, _ = first_line(owner)
    wait_until(lambda: processes_in(f"{prefix}h1"), "something runs on a host")
    watchdog_of(owner).kill()
    owner.kill()
    owner.wait(timeout=60)
    left = processes_in(f"{prefix}h1")
    assert left, "what ran on a host runs on"

    slot = claim_slot()
    try:
        assert slot.prefix == prefix
        assert traces(prefix) == []
        assert living(left) == []
    finally:
        slot.release()


def test_a_command_that_outlives_its_owner_keeps_the_slot_until_it_ends(tmp_path: Path) -> None:
    # Otherwise `ip` would go on making hosts while, or after, the watchdog removes them.
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    source = (
        "import sys\n"
        "from farm.lab.slots import claim_slot\n"
        "from farm.lab.system import run\n"
        "slot = claim_slot()\n"
        "print(slot.number, flush=True)\n"
        "run('cat', sys.argv[1])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", source, str(gate)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        number = int(owner.stdout.readline())
        with gate.open("w"):  # waits for the command
            owner.kill()
            owner.wait(timeout=60)
            assert hold(number) is None
    slot = wait_until(lambda: hold(number), "the slot is free")
    assert slot is not None
    slot.clear()
    slot.release()


def test_clear_removes_dead_labs_and_spares_living_ones(owner: subprocess.Popen[str]) -> None:
    prefix, _ = first_line(owner)
    with Lab(hosts=1) as spared:
        watchdog_of(owner).kill()
        owner.kill()
        owner.wait(timeout=60)

        result = CliRunner().invoke(main, ["lab", "--clear"], catch_exceptions=False)

        assert (result.exit_code, result.stdout) == (0, "removed 1 dead lab\n")
        assert traces(prefix) == []
        assert len(traces(spared.slot.prefix)) == 2 + 2 + 1


@pytest.mark.parametrize(
    ("network", "is_in_the_way"),
    [
        ("198.19.3.0/24", True),
        ("198.19.3.17/32", True),
        ("198.18.0.0/15", True),
        ("198.0.0.0/8", True),
        ("198.19.4.0/24", False),
        ("198.18.3.0/24", False),
        # Half of the world is a default route, as VPNs set it.
        ("128.0.0.0/1", False),
    ],
)
def test_a_lab_does_not_take_addresses_that_the_machine_has(
    tmp_path: Path, network: str, is_in_the_way: bool
) -> None:
    with (tmp_path / "lock").open("w") as lock:
        slot = Slot(3, lock)
        rival = slot.rival([IPv4Network("10.0.0.0/8"), IPv4Network(network)])
    assert rival == (IPv4Network(network) if is_in_the_way else None)


def test_a_lab_passes_over_what_is_taken_and_says_so_where_nothing_is_left() -> None:
    # On a machine of its own: other labs of this one come and go.
    source = textwrap.dedent("""
        from farm.errors import FarmError
        from farm.lab.slots import claim_slot
        try:
            slot = claim_slot()
        except FarmError as error:
            print(error)
        else:
            slot.clear()
            slot.release()
            print(slot.number)
    """)
    with two_hosts() as (host, _):

        def claimed() -> str:
            command = [*host.command()[:-1], "-c", source]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
            return done.stdout.strip()

        free = int(claimed())
        host.ip("address", "add", f"198.19.{free}.9/24", "dev", "lo")
        assert int(claimed()) != free
        host.ip("route", "add", "blackhole", "198.18.0.0/15")
        assert claimed().startswith("no lab can have addresses: this machine has 198.18.0.0/15, ")


def test_two_labs_at_once_have_nothing_in_common() -> None:
    with Lab(hosts=1) as one, Lab(hosts=1) as two:
        assert not set(traces(one.slot.prefix)) & set(traces(two.slot.prefix))
        assert one.hosts[0].address != two.hosts[0].address
        assert one.server_address != two.server_address
        state = one.run(one.hosts[0], ["ip", "-br", "address"]).stdout
        assert one.hosts[0].address in state
        assert one.hosts[0].broker_address in state


def test_wires_go_before_what_the_hosts_do() -> None:
    with Lab(hosts=1) as lab:
        for pid in lab.wire_pids().values():
            assert os.sched_getscheduler(pid) == os.SCHED_RR


def test_wires_without_their_switch_do_not_take_the_machine() -> None:
    with Lab(hosts=1) as lab:
        pids = lab.wire_pids()
        os.kill(pids.pop("switch"), signal.SIGKILL)

        wait_until(lambda: not living(pids.values()), "the wire has ended")


def test_a_trainer_on_a_host_reads_the_counters_of_its_own_interface() -> None:
    with Lab(hosts=1) as lab:
        [host] = lab.hosts
        script = (
            "from farm.trainers.loop.window import read_interface\n"
            f"print(read_interface({host.interface!r}) is not None)"
        )
        done = lab.run(host, [sys.executable, "-c", script])

    assert (done.stdout, done.stderr) == ("True\n", "")
