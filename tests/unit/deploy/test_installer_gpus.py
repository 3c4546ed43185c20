"""Which TensorFlow and PyTorch `deploy/install.sh` takes for a machine with or without GPUs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.commands.installer_script import DEPLOY, installer

# The two wordings of NVIDIA's kernel modules.
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Sat Aug 19 01:15:15 UTC 2023\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build\n"
MACHINE = "uname() { echo x86_64; }"
CHOICE = (
    'choose_requirements agent; echo "lists ${REQUIREMENTS[*]##*/}"; echo "torch $TORCH_VERSION"'
)


def chosen(
    folder: Path, *, driver: str | None = None, gpu: str = "auto", torch: str = "", own: str = ""
) -> tuple[str, str, str]:
    """What was said, the lists, and PyTorch's version where it comes without GPUs."""
    if driver is not None:
        (folder / "version").write_text(driver)
    output = installer(
        folder,
        f'NVIDIA_DRIVER={folder}/version CURRENT={folder}/current GPU={gpu} TORCH="{torch}"',
        f'OWN_REQUIREMENTS="{own}"',
        MACHINE,
        CHOICE,
    )
    message, _, rest = output.partition("lists ")
    lists, _, version = rest.partition("\ntorch ")
    return message, lists, version.strip()


def test_a_machine_without_a_driver_gets_frameworks_for_processors(tmp_path: Path) -> None:
    message, lists, version = chosen(tmp_path, torch="yes")
    assert message.count("for processors: no driver of NVIDIA's is loaded") == 2
    assert lists == "requirements-agent.txt requirements-torch.txt"
    assert re.fullmatch(r"2\.\d+\.\d+", version)


@pytest.mark.parametrize(
    ("driver", "taken"),
    [
        (CLOSED.format("470.256.02"), "requirements-agent.txt"),
        (CLOSED.format("525.60.13"), "requirements-agent-gpu.txt"),
        (OPEN.format("580.65.06"), "requirements-agent-gpu.txt"),
        ("nothing that is known\n", "requirements-agent.txt"),
    ],
)
def test_the_driver_decides_whether_tensorflow_is_for_gpus(
    tmp_path: Path, driver: str, taken: str
) -> None:
    message, lists, version = chosen(tmp_path, driver=driver)
    assert (lists, version) == (taken, "")
    assert message.startswith("install.sh: TensorFlow for ")
    assert ("for GPUs: " in message) is taken.endswith("gpu.txt")


def test_pytorch_needs_a_newer_driver_than_tensorflow(tmp_path: Path) -> None:
    message, lists, version = chosen(tmp_path, driver=OPEN.format("560.35.03"), torch="yes")
    assert lists == "requirements-agent-gpu.txt requirements-torch.txt"
    assert version
    assert "NVIDIA's driver is 560.35.03, and that for GPUs needs 580 or newer" in message
    _, lists, version = chosen(tmp_path, driver=OPEN.format("580.65.06"), torch="yes")
    assert (lists, version) == ("requirements-agent-gpu.txt requirements-torch.txt", "")


def test_what_was_asked_for_is_taken_whatever_the_driver(tmp_path: Path) -> None:
    assert chosen(tmp_path, gpu="yes") == ("", "requirements-agent-gpu.txt", "")
    assert chosen(tmp_path, gpu="no", driver=OPEN.format("580.65.06"))[:2] == (
        "",
        "requirements-agent.txt",
    )
    assert chosen(tmp_path, own="mine.txt") == ("", "mine.txt", "")


def test_pytorch_stays_once_it_was_installed(tmp_path: Path) -> None:
    package = tmp_path / "current" / "lib" / "python3.11" / "site-packages" / "torch"
    package.mkdir(parents=True)
    (package / "version.py").touch()
    assert "requirements-torch.txt" in chosen(tmp_path)[1]


def test_the_list_without_gpus_has_all_else_that_pytorch_needs(tmp_path: Path) -> None:
    left = installer(tmp_path, f"without_gpus {DEPLOY}/requirements-torch.txt")
    whole = (DEPLOY / "requirements-torch.txt").read_text()
    names = re.findall(r"^([a-z0-9-]+)==", left, re.MULTILINE)
    assert {"filelock", "jinja2", "networkx", "sympy"} <= set(names)
    dropped = set(re.findall(r"^([a-z0-9-]+)==", whole, re.MULTILINE)) - set(names)
    assert {"torch", "triton"} < dropped
    assert all(re.match("(torch|triton|nvidia-|cuda-)", name) for name in dropped)
    assert left.count("--hash=") >= 2 * len(names)


def test_only_one_tensorflow_is_in_each_list() -> None:
    """Its packages for processors and for GPUs overwrite each other's files."""
    for name, package in (("agent", "tensorflow-cpu"), ("agent-gpu", "tensorflow")):
        text = (DEPLOY / f"requirements-{name}.txt").read_text()
        assert re.findall(r"^(tensorflow(?:-cpu|-intel)?)==", text, re.MULTILINE) == [package]
