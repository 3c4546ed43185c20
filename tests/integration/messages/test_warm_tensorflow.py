"""Real TensorFlow, forked: a warm trainer trains as a cold one, to the last bit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.messages.reports import Prepared, RankEnded
from farm.messages.trainer_lines import TrainerResult
from farm.trainers.processes.template import thread_count
from tests.fakes.server import wait_until
from tests.machine.agents import AgentFarm, AgentProcess

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[AgentFarm]:
    with AgentFarm(tmp_path) as farm:
        yield farm


def train(farm: AgentFarm, token: int, agent: AgentProcess) -> tuple[TrainerResult, float]:
    """Run a short job on an agent; return its result and how long it took to be prepared."""
    gang = farm.gang(
        token, agent, model="small_cnn", dataset="digits", strategy="single", steps=5, seed=3
    )
    gang.start(prepare_timeout_s=90)
    gang.wait_for(Prepared, timeout_s=90)
    gang.lead_to_go(start_timeout_s=60)
    [ended] = gang.wait_for(RankEnded, timeout_s=60)
    assert ended.result is not None, ended
    [prepared] = farm.server.bodies(agent.agent_id, Prepared, token)
    return ended.result, prepared.prepare_s


def test_jobs_from_one_template_train_as_cold_ones_to_the_last_bit(farm: AgentFarm) -> None:
    warm = farm.agent(AGENT_TRAINER="")
    template = wait_until(warm.template, "a template")
    wait_until(
        lambda: farm.beat(warm).template_bytes,  # type: ignore[union-attr] # it has beaten
        "a template that is ready",
        timeout_s=90,
    )
    assert thread_count(template) == 1
    first, first_prepare_s = train(farm, 1, warm)
    second, second_prepare_s = train(farm, 2, warm)
    assert warm.template() == template
    assert thread_count(template) == 1
    warm.stop()
    cold = farm.agent(AGENT_TRAINER="", AGENT_WARM_TRAINERS="false")
    assert cold.template() is None
    third, third_prepare_s = train(farm, 3, cold)
    for result in (first, second):
        assert result.train_loss == third.train_loss
        assert result.val_accuracy_ratio == third.val_accuracy_ratio
        for name in ("weights_sum", "weights_square_sum", "val_loss", "device"):
            assert result.details[name] == third.details[name], name
    # By far: what is left of seconds is the loading of the data.
    assert max(first_prepare_s, second_prepare_s) < third_prepare_s / 3


def test_a_template_holds_neither_a_context_nor_a_device_nor_a_second_thread() -> None:
    script = (
        "import json, os; from farm.trainers.processes import template;"
        "template.load(); template.settle();"
        "from tensorflow.python.eager import context;"
        "links = [os.readlink(f'/proc/self/fd/{fd}') for fd in range(3, 50)"
        "         if os.path.lexists(f'/proc/self/fd/{fd}')];"
        "print(json.dumps([template.thread_count(), context._context is None, links]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=90, check=True
    )
    threads, is_without_context, links = json.loads(done.stdout)
    assert threads == 1
    assert is_without_context
    assert not any("/dev/" in link for link in links), links


def test_a_library_with_threads_of_its_own_keeps_trainers_cold() -> None:
    script = (
        "import threading; from farm.trainers.processes.template import settle;"
        "threading.Thread(target=threading.Event().wait, daemon=True).start(); settle()"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert "expected 1 thread, got 2" in done.stderr
