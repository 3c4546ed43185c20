"""What the kernel says of a process without a readable environment."""

from __future__ import annotations

import pytest

from farm.processes.marked import shows_none_yet

_PROGRAM = {
    **{"state": b"R", "flags": b"4194304", "threads": b"1"},
    **{"start": b"94", "env_start": b"7", "env_end": b"7"},
}


def _stat(name: bytes = b"sleep", **changes: bytes) -> bytes:
    """Return a line as of proc_pid_stat(5); by default of a program without any environment."""
    given = {**_PROGRAM, **changes}
    fields = [b"0"] * 50
    fields[0], fields[6], fields[17] = given["state"], given["flags"], given["threads"]
    fields[23] = given["start"]
    fields[47], fields[48] = given["env_start"], given["env_end"]
    return b"12 (" + name + b") " + b" ".join(fields) + b"\n"


@pytest.mark.parametrize("name", [b"sleep", b"a) R 0 (b", b"\xff\xd1", b""])
def test_a_program_without_any_has_none_whatever_its_name(name: bytes) -> None:
    assert not shows_none_yet(_stat(name))


def test_a_thread_of_the_kernel_has_none() -> None:
    stat = _stat(flags=b"2097152", start=b"0", env_start=b"0", env_end=b"0")
    assert not shows_none_yet(stat)


@pytest.mark.parametrize("state", [b"Z", b"X"])
def test_a_zombie_has_ended(state: bytes) -> None:
    stat = _stat(state=state, flags=b"4", start=b"0", env_start=b"0", env_end=b"0")
    assert not shows_none_yet(stat)


@pytest.mark.parametrize(
    "between",
    [
        {"start": b"0", "env_start": b"0", "env_end": b"0"},
        {"start": b"0"},
        {"env_end": b"99"},
        {"flags": b"4"},
        {"flags": b"4", "start": b"0", "env_start": b"0", "env_end": b"0"},
        {"state": b"Z", "threads": b"2"},
        {"state": b"X", "threads": b"0"},
    ],
    ids=[
        *("no program yet", "its end not noted yet", "a program by now"),
        *("ending", "no memory left", "others of it live", "another took its place"),
    ],
)
def test_what_ends_or_becomes_another_program_is_looked_at_again(between: dict[str, bytes]) -> None:
    assert shows_none_yet(_stat(**between))


def test_a_program_that_is_closed_to_us_shows_none() -> None:
    assert not shows_none_yet(_stat(env_end=b"99"), is_closed=True)


@pytest.mark.parametrize("ending", [{"flags": b"4"}, {"state": b"Z", "threads": b"2"}])
def test_one_that_ends_is_closed_to_all_but_root(ending: dict[str, bytes]) -> None:
    assert shows_none_yet(_stat(**ending), is_closed=True)
