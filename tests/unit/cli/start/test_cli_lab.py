"""What `farm lab` asks of the machine, and the sweep that it submits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from farm.cli.main import main
from farm.cli.start.lab import lab_sweep
from farm.submission import plan


def refusal() -> str:
    result = CliRunner().invoke(main, ["lab"])
    assert (result.exit_code, result.stdout) == (1, "")
    return result.stderr


def test_without_root_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert refusal() == "farm: a lab needs root, to make network namespaces: run it with sudo\n"


def test_missing_programs_are_named_with_their_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert refusal() == (
        "farm: a lab needs vde_switch and wirefilter and ip and tc and nsenter and sysctl: "
        "apt-get install vde2 vde-wirefilter iproute2 util-linux procps\n"
    )


@pytest.mark.parametrize("delay_ms", ["0", "-1", "201", "nan", "inf"])
def test_a_delay_that_is_none_or_absurd_is_wrong_usage(delay_ms: str) -> None:
    result = CliRunner().invoke(main, ["lab", "--delay-ms", delay_ms])

    assert result.exit_code == 2
    assert "--delay-ms" in result.stderr


def test_every_gang_meets_no_delay_and_the_delay_asked_for() -> None:
    jobs = plan(lab_sweep(4, delay_ms=7.5)).expansion.jobs

    gangs = {(job.world_size, job.network and job.network.one_way_delay_s) for job in jobs}
    assert gangs == {(1, None), (2, None), (2, 0.0075), (4, None), (4, 0.0075)}
    assert {job.global_batch_size for job in jobs} == {192, 1280}
