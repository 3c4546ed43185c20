"""Jobs of PyTorch go to agents that have it, in one version, and to trainers that start cold."""

from __future__ import annotations

import importlib.metadata
import sysconfig
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from farm import registry
from farm.configuration.catalogue import TORCH
from farm.configuration.spec import TORCH_COMPILE
from farm.configuration.sweep_cell import problem_of
from farm.gang.snapshots import LiveAgent, WaitingJob
from farm.placement.scheduling import explain, place
from farm.trainers.contracts import Strategy
from farm.trainers.strategies import STRATEGIES
from tests.factories import job_spec
from tests.facts import lacking
from worker_agent.config import load_config
from worker_agent.machine.hardware import read_facts

RESERVE_AFTER_S = 60.0


def agent(agent_id: str, *can: str, tensorflow: str | None = "2.21.0") -> LiveAgent:
    return LiveAgent(
        agent_id=agent_id,
        machine_id=agent_id,
        cpus=frozenset({0}),
        capabilities=frozenset(can),
        labels=frozenset(),
        fingerprint="",
        framework_version=tensorflow,
        is_idle=True,
        is_occupying=False,
    )


def with_torch(agent_id: str, version: str, *, tensorflow: str | None = "2.21.0") -> LiveAgent:
    return agent(agent_id, TORCH, f"torch:{version}", tensorflow=tensorflow)


def job(agent_count: int, requires: Iterable[str] = (TORCH,)) -> WaitingJob:
    return WaitingJob(
        job_id=1,
        agent_count=agent_count,
        requires=frozenset(requires),
        labels=frozenset(),
        avoid=frozenset(),
        measured_by={},
        measured_on=frozenset(),
        priority=0,
        waited_s=0.0,
    )


def gang(waiting: WaitingJob, agents: list[LiveAgent]) -> set[str]:
    placed = place([waiting], agents, reserve_after_s=RESERVE_AFTER_S)
    return {agent_id for placement in placed for agent_id in placement.agent_ids}


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.facts.name)
def test_a_strategy_asks_for_pytorch_if_it_is_one_of_it(strategy: Strategy) -> None:
    job = replace(job_spec(), strategy=strategy.facts.name)
    assert (TORCH in job.required_capabilities) == (strategy.facts.framework == "torch")


def test_an_agent_without_pytorch_gets_no_job_of_it() -> None:
    assert gang(job(1), [agent("a"), with_torch("b", "2.13.0")]) == {"b"}
    assert gang(job(2), [agent("a"), with_torch("b", "2.13.0")]) == set()


def test_a_job_that_is_compiled_goes_where_a_compiler_is() -> None:
    plain = replace(job_spec(), strategy="torch_ddp")
    compiled = replace(plain, axes={"compile": "torch_compile"})
    assert compiled.required_capabilities == {*plain.required_capabilities, TORCH_COMPILE}
    waiting = job(1, requires=compiled.required_capabilities)
    able = agent("b", TORCH, "torch:2.13.0", TORCH_COMPILE)
    assert gang(waiting, [with_torch("a", "2.13.0"), able]) == {"b"}
    reason = explain([waiting], [with_torch("a", "2.13.0")], reserve_after_s=RESERVE_AFTER_S)[1]
    assert reason == "no agent with PyTorch has g++ and Python.h, which torch.compile needs"


def test_an_agent_can_compile_with_a_compiler_and_headers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    programs, headers = tmp_path / "bin", tmp_path / "include"
    programs.mkdir()
    headers.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(headers))
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "2.13.0")
    config = load_config({"AGENT_STATE_DIR": str(tmp_path), "AGENT_CLOUD": "never"})
    found = []
    for file, mode in ((programs / "g++", 0o755), (headers / "Python.h", 0o644)):
        found.append(TORCH_COMPILE in read_facts(config).capabilities)
        file.touch(mode)
    assert found == [False, False]
    assert TORCH_COMPILE in read_facts(config).capabilities


def test_an_agent_without_tensorflow_gets_jobs_of_pytorch_alone() -> None:
    without = replace(with_torch("a", "2.13.0"), has_tensorflow=False)
    assert gang(job(1), [without]) == {"a"}
    assert gang(job(1, requires=()), [without, agent("b")]) == {"b"}
    assert gang(job(2, requires=()), [without, agent("b")]) == set()


def test_a_job_says_that_it_waits_for_tensorflow() -> None:
    without = replace(with_torch("a", "2.13.0"), has_tensorflow=False)
    wants = job(2, requires=())

    def reason(*agents: LiveAgent) -> str:
        return explain([wants], agents, reserve_after_s=RESERVE_AFTER_S)[1]

    assert reason(without) == "no agent has TensorFlow"
    text = reason(without, agent("b"))
    assert lacking(text, "needs 2 agents", "has 1", "1 more without TensorFlow") == []


def test_a_gang_has_one_version_of_pytorch_whatever_its_tensorflow() -> None:
    agents = [
        with_torch("a", "2.13.0"),
        with_torch("b", "2.14.0", tensorflow=None),
        with_torch("c", "2.14.0"),
        with_torch("d", "2.12.0"),
    ]
    assert gang(job(2), agents) == {"b", "c"}
    assert gang(job(3), agents) == set()
    reason = explain([job(3)], agents, reserve_after_s=RESERVE_AFTER_S)[1]
    versions = ("2 with 2.14.0", "1 with 2.13.0", "1 with 2.12.0")
    assert lacking(reason, "needs 3 agents", "one PyTorch version", *versions) == []


def test_a_gang_of_tensorflow_minds_no_version_of_pytorch() -> None:
    agents = [with_torch("a", "2.13.0"), with_torch("b", "2.14.0"), agent("c")]
    assert gang(job(3, requires=()), agents) == {"a", "b", "c"}


def test_an_agent_says_which_pytorch_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = load_config({"AGENT_STATE_DIR": str(tmp_path), "AGENT_CLOUD": "never"})
    versions = {"torch": "2.13.0+cpu"}

    def version(package: str) -> str:
        if package not in versions:
            raise importlib.metadata.PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert {"torch", "torch:2.13.0+cpu"} <= set(read_facts(config).capabilities)
    versions.clear()
    facts = read_facts(config)
    assert not [name for name in facts.capabilities if name.startswith("torch")]
    assert facts.hardware.tensorflow_version is None


@pytest.mark.parametrize(("emulator", "is_refused"), [("tcp_proxy", True), ("tc_netem", False)])
def test_a_proxy_that_pytorch_would_go_round_is_refused(emulator: str, is_refused: bool) -> None:
    from farm.configuration.axes import ABSENT
    from farm.configuration.spec import NetworkProfile
    from farm.configuration.sweep_cell import Cell

    axes = {
        "model": "mlp",
        "dataset": "digits",
        "strategy": "torch_ddp",
        "world_size": 2,
        "global_batch_size": 64,
    }
    cell = Cell(
        case=0,
        values={**ABSENT, **axes},
        network=NetworkProfile(one_way_delay_s=0.01),
        emulator=emulator,
    )
    problem = problem_of(cell, registry.catalogue(), repeat=False)
    assert (problem is not None) == is_refused
    if problem is not None:
        assert str(problem) == (
            "emulator: expected one that shapes every port, for strategy 'torch_ddp',"
            " got 'tcp_proxy'"
        )
