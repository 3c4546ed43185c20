"""What the kernel says of a process without a readable environment."""

from __future__ import annotations

import pytest

from farm.marked import has_no_environment

_PROGRAM = {"state": b"R", "flags": b"4194304", "start": b"94", "env_start": b"7", "env_end": b"7"}


def _stat(name: bytes = b"sleep", **changes: bytes) -> bytes:
    """Return a line as of proc_pid_stat(5); by default of a program without any environment."""
    given = {**_PROGRAM, **changes}
    fields = [b"0"] * 50
    fields[0], fields[6], fields[23] = given["state"], given["flags"], given["start"]
    fields[47], fields[48] = given["env_start"], given["env_end"]
    return b"12 (" + name + b") " + b" ".join(fields) + b"\n"


@pytest.mark.parametrize("name", [b"sleep", b"a) R 0 (b", b"\xff\xd1", b""])
def test_a_program_without_any_has_none_whatever_its_name(name: bytes) -> None:
    assert has_no_environment(_stat(name))


@pytest.mark.parametrize(
    "ended",
    [{"state": b"Z"}, {"state": b"X"}, {"flags": b"4"}, {"flags": b"2097152"}],
    ids=["zombie", "dead", "exiting", "thread of the kernel"],
)
def test_what_has_ended_or_is_the_kernels_has_none(ended: dict[str, bytes]) -> None:
    assert has_no_environment(_stat(start=b"0", env_start=b"0", env_end=b"0", **ended))


@pytest.mark.parametrize(
    "between",
    [
        {"start": b"0", "env_start": b"0", "env_end": b"0"},
        {"start": b"0"},
        {"env_end": b"99"},
    ],
    ids=["no program yet", "its end not noted yet", "a program by now"],
)
def test_what_becomes_another_program_is_looked_at_again(between: dict[str, bytes]) -> None:
    assert not has_no_environment(_stat(**between))
