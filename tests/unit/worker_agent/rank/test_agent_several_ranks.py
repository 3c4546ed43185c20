"""An agent that trains several ranks at once speaks for all of them."""

from __future__ import annotations

import dataclasses
import queue
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from farm.gang.barriers import cluster_spec
from farm.measuring.measurement import AttemptFigures, RankOutcome
from farm.measuring.quantities import measure
from farm.messages.commands import Go, Peers, StartRank
from farm.messages.reports import Prepared, RankEnded, ReportBody, StepTimes
from farm.messages.trainer_lines import (
    SCRIPT_TIMES,
    Exchange,
    Failure,
    FailureKind,
    Progress,
    Ready,
    ScriptTimes,
    Started,
    StepKind,
    StepProfile,
    Steps,
    TrainerEvent,
    TrainerResult,
    UserCode,
)
from farm.registry import dataset_facts, model_size, strategy_or_launcher
from farm.values.codec import to_json
from tests.factories import job_spec
from tests.stored.two_agents import RESULT, SOURCE
from worker_agent.config import load_config
from worker_agent.rank.ports import PortRange
from worker_agent.rank.rank import RunningRank
from worker_agent.rank.rank_end import result_of_ranks
from worker_agent.rank.resources import RankResources
from worker_agent.supervisor.events import (
    AgentEvent,
    NetworkMeasured,
    RankCleared,
    RankEvent,
    TrainerExited,
    TrainerOutput,
)

# Ranks 0 and 1 of a gang on one agent. A test tells what they say and when they end.
COMMAND = StartRank(
    token=7,
    rank=0,
    agent_count=1,
    roles=("worker", "worker"),
    spec=job_spec(world_size=2, axes={"ranks_per_agent": 2}, model="file:own.py"),
    prepare_timeout_s=30.0,
)
PEER_LOST = Failure(kind=FailureKind.PEER_LOST, message="connection closed by peer")
RAISED = Failure(kind=FailureKind.TRAINER_RAISED, message="ValueError: no such key")
FIRST_STEP_S = 60.0


def started(weights_checksum: float | None = None) -> Started:
    return Started(
        parameter_count=1,
        gradient_bytes=4,
        connect_s=0.1,
        first_step_s=0.1,
        weights_checksum=weights_checksum,
    )


@dataclass
class Agent:
    """The rank of an agent, and what it has reported."""

    rank: RunningRank
    events: queue.SimpleQueue[AgentEvent]
    reports: list[ReportBody]
    now: float = 0.0

    def happens(self, event: RankEvent) -> None:
        self.now += 0.1
        self.rank.handle(event, now=self.now)

    def say(self, process: int, event: TrainerEvent) -> None:
        self.happens(TrainerOutput(token=7, process=process, event=event))

    def exit(self, process: int, return_code: int = 0) -> None:
        self.happens(TrainerExited(token=7, process=process, return_code=return_code))

    def end(self) -> RankEnded:
        """Wait until nothing of the rank is left, and return its last report."""
        while not isinstance(event := self.events.get(timeout=60), RankCleared):
            pass
        self.happens(event)
        ended = self.reports[-1]
        assert isinstance(ended, RankEnded)
        return ended

    def close(self) -> None:
        if not self.rank.is_over:
            self.rank.stop("the test is over")
            while not isinstance(self.events.get(timeout=60), RankCleared):
                pass

    def failure(self) -> Failure:
        """Return what the rank has failed of."""
        failure = self.end().failure
        assert failure is not None
        return failure


def unprepared(tmp_path: Path, command: StartRank = COMMAND) -> Agent:
    """Return an agent of two ranks that have not said yet that they are ready."""
    environ = {
        "AGENT_STATE_DIR": str(tmp_path),
        "AGENT_ADVERTISE_ADDRESS": "127.0.0.1",
        "AGENT_TRAINER": "sleep 60",
    }
    events: queue.SimpleQueue[AgentEvent] = queue.SimpleQueue()
    reports: list[ReportBody] = []
    resources = RankResources(
        command, config=load_config(environ), ports=PortRange(28200, 28299), post=events.put
    )
    rank = RunningRank(
        command, resources=resources, report=reports.append, progress_timeout_s=60.0, now=0.0
    )
    agent = Agent(rank, events, reports)
    rank.start()
    return agent


def ready(device_control_s: float | None = None) -> Ready:
    return Ready(
        import_s=0.1,
        framework="torch 2.13.0",
        dataset=SOURCE,
        device_control_s=device_control_s,
    )


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """Yield an agent whose two ranks may connect."""
    agent = connected(tmp_path)
    yield agent
    agent.close()


def connected(tmp_path: Path, command: StartRank = COMMAND) -> Agent:
    """Return an agent whose two ranks may connect."""
    agent = unprepared(tmp_path, command)
    rank = agent.rank
    for process in range(2):
        agent.say(process, ready())
    [prepared] = agent.reports
    assert isinstance(prepared, Prepared)
    addresses = (prepared.address,)
    rank.peers(Peers(token=7, addresses=addresses, timeout_s=10.0), now=agent.now)
    # The rank measures in a thread of its own, which closes its ports first.
    measured = agent.events.get(timeout=60)
    assert isinstance(measured, NetworkMeasured)
    assert measured.failure is None
    agent.happens(measured)
    cluster = cluster_spec(addresses, [COMMAND.roles])
    rank.go(Go(token=7, cluster=cluster, timeout_s=FIRST_STEP_S), received_s=agent.now)
    return agent


@pytest.mark.parametrize(("second_s", "expected_s"), [(0.03, 0.03), (0.01, 0.02), (None, None)])
def test_an_agent_is_as_fast_as_the_slowest_gpu_of_its_ranks(
    tmp_path: Path, second_s: float | None, expected_s: float | None
) -> None:
    agent = unprepared(tmp_path)
    agent.say(0, ready(0.02))
    agent.say(1, ready(second_s))
    [prepared] = agent.reports
    agent.close()
    assert isinstance(prepared, Prepared)
    assert prepared.device_control_s == expected_s


def test_the_cause_counts_and_not_the_echo_that_another_rank_heard_first(agent: Agent) -> None:
    agent.say(0, started())
    agent.say(0, PEER_LOST)
    agent.exit(0, 1)
    agent.say(1, RAISED)
    agent.exit(1, 1)
    failure = agent.failure()
    assert (failure.kind, failure.message) == (
        FailureKind.TRAINER_RAISED,
        f"process of rank 1: {RAISED.message}",
    )


def test_a_rank_that_was_killed_is_the_cause_of_what_another_heard_first(agent: Agent) -> None:
    agent.say(0, started())
    agent.say(1, PEER_LOST)
    agent.exit(0, -9)
    failure = agent.failure()
    assert failure.kind is FailureKind.KILLED
    assert failure.message.startswith("process of rank 0: trainer was ended by SIGKILL")


def test_where_all_ranks_lost_their_peers_the_agent_has_lost_them(agent: Agent) -> None:
    agent.say(0, started())
    agent.say(1, PEER_LOST)
    agent.say(0, PEER_LOST)
    agent.exit(1, 1)
    agent.exit(0, 1)
    failure = agent.failure()
    assert failure.kind is FailureKind.PEER_LOST
    assert failure.message == f"process of rank 1: {PEER_LOST.message}"


def test_a_rank_that_was_done_is_not_the_cause_of_what_another_heard(agent: Agent) -> None:
    agent.say(0, started())
    agent.say(1, RESULT)
    agent.say(0, PEER_LOST)
    agent.exit(1)
    agent.exit(0, 1)
    assert agent.failure().kind is FailureKind.PEER_LOST


def test_a_rank_that_only_hangs_is_not_waited_for(agent: Agent) -> None:
    agent.say(0, started())
    agent.say(1, PEER_LOST)
    agent.exit(1, 1)
    agent.rank.tick(now=agent.now + 60.0)
    assert agent.failure().kind is FailureKind.PEER_LOST


def test_the_agent_succeeds_once_all_its_ranks_have(agent: Agent) -> None:
    agent.say(0, started())
    agent.say(1, RESULT)
    agent.exit(1)
    agent.say(0, RESULT)
    agent.exit(0)
    ended = agent.end()
    assert ended.failure is None
    assert ended.result is not None


def test_the_bytes_of_an_agent_are_the_mean_of_its_ranks_and_its_memory_all_of_theirs(
    agent: Agent,
) -> None:
    agent.say(0, started())
    hub = dataclasses.replace(RESULT, payload_tx_bytes=3000, payload_rx_bytes=1001)
    agent.say(0, dataclasses.replace(hub, peak_resident_bytes=500))
    agent.say(1, dataclasses.replace(RESULT, payload_tx_bytes=1000, peak_resident_bytes=400))
    agent.exit(0)
    agent.exit(1)
    result = agent.end().result
    assert result is not None
    assert (result.payload_tx_bytes, result.payload_rx_bytes) == (2000, 1700)
    assert result.peak_resident_bytes == 900


@pytest.mark.parametrize(
    ("strategy", "processes"), [("mwms_ring", [0]), ("gossip", [0, 1]), ("ps_async", [0, 1])]
)
def test_the_steps_of_each_rank_are_told_where_they_do_not_step_together(
    tmp_path: Path, strategy: str, processes: list[int]
) -> None:
    spec = dataclasses.replace(COMMAND.spec, strategy=strategy, model="mlp")
    agent = connected(tmp_path, dataclasses.replace(COMMAND, spec=spec))
    agent.say(0, started())
    agent.say(1, started())
    for process in range(2):
        begun_s = agent.now
        steps = Steps(
            kind=StepKind.TIMED, first_step=0, begun_monotonic_s=begun_s, times_s=(0.1, 0.2)
        )
        agent.say(process, steps)
    found = [body for body in agent.reports if isinstance(body, StepTimes)]
    assert [body.process for body in found] == processes
    assert {(body.times_s, body.begun_s >= 0) for body in found} == {((0.1, 0.2), True)}
    agent.close()


@pytest.mark.parametrize(("strategy", "expected"), [("mwms_ring", 5), ("local_sgd", 9)])
def test_updates_of_ranks_add_up_where_each_makes_its_own(strategy: str, expected: int) -> None:
    results = [dataclasses.replace(RESULT, exchange=Exchange(update_count=n)) for n in (5, 4)]
    is_synchronous = strategy_or_launcher(strategy).facts.is_synchronous
    exchange = result_of_ranks(results, is_synchronous=is_synchronous).exchange
    assert exchange is not None
    assert exchange.update_count == expected
    results[1] = dataclasses.replace(RESULT, exchange=None)
    exchange = result_of_ranks(results, is_synchronous=is_synchronous).exchange
    assert (exchange is None) is not is_synchronous


def test_staleness_is_that_of_all_ranks_and_their_times_are_means() -> None:
    exchanges = ((2, 0.25, (1, 1)), (3, 0.75, (0, 1, 2)))
    results = [
        dataclasses.replace(
            RESULT,
            exchange=Exchange(update_count=n, push_s=push_s, pull_s=None, staleness_counts=counts),
        )
        for n, push_s, counts in exchanges
    ]
    exchange = result_of_ranks(results, is_synchronous=False).exchange
    assert exchange == Exchange(update_count=5, push_s=0.5, pull_s=None, staleness_counts=(1, 2, 2))


def test_the_profile_of_an_agent_is_the_mean_of_its_ranks() -> None:
    results = [
        dataclasses.replace(
            RESULT,
            profile=StepProfile(step_count=10, step_time_s=1.0, compute_s=c, communication_s=1 - c),
        )
        for c in (0.25, 0.75)
    ]
    profile = result_of_ranks(results).profile
    assert profile is not None
    assert (profile.compute_s, profile.communication_s, profile.step_time_s) == (0.5, 0.5, 1.0)
    results[1] = dataclasses.replace(RESULT, profile=None)
    assert result_of_ranks(results).profile is None


@pytest.mark.parametrize(
    ("of_ranks", "expected"), [((5, 7), 7), ((5, None), 5), ((None, None), None)]
)
def test_the_gpu_memory_of_an_agent_is_that_of_the_gpu_with_most(
    of_ranks: tuple[int | None, int | None], expected: int | None
) -> None:
    results = [dataclasses.replace(RESULT, peak_device_memory_bytes=one) for one in of_ranks]
    assert result_of_ranks(results).peak_device_memory_bytes == expected


def script_times(result: TrainerResult) -> ScriptTimes:
    times = result.script_times
    assert times is not None
    return times


def told_by(process: int, **changes: Any) -> TrainerResult:
    """Return a script's result: rank 0 has 3 of 5 examples in each of 10 steps."""
    fields: dict[str, Any] = {"pause_s": 1.0 + process, "data_wait_s": 0.2 * process}
    counts = {"examples_count": (30, 20)[process], "epoch_count": None, "steps_per_epoch": None}
    times = ScriptTimes(**{**fields, **counts, **changes})
    return dataclasses.replace(RESULT, details={SCRIPT_TIMES: to_json(times), "seed": process})


def test_the_examples_of_an_agent_are_those_of_all_its_scripts(agent: Agent) -> None:
    agent.say(0, started())
    for process in range(2):
        agent.say(process, told_by(process))
        agent.exit(process)
    result = agent.end().result
    assert result is not None
    times = script_times(result)
    assert (times.examples_count, times.pause_s, times.data_wait_s) == (50, 1.5, 0.1)
    assert result.details["seed"] == 0


@pytest.mark.parametrize(("second_s", "expected_s"), [(1.5, 1.0), (None, None)])
def test_the_wait_for_batches_of_an_agent_is_the_mean_of_its_ranks(
    agent: Agent, second_s: float | None, expected_s: float | None
) -> None:
    agent.say(0, started())
    for process, wait_s in enumerate((0.5, second_s)):
        agent.say(process, dataclasses.replace(RESULT, data_wait_s=wait_s))
        agent.exit(process)
    result = agent.end().result
    assert result is not None
    assert result.data_wait_s == expected_s


@pytest.mark.parametrize(("steps", "is_refused"), [(None, True), (3, False)])
def test_a_script_that_ends_after_other_steps_on_each_rank_has_no_time(
    tmp_path: Path, steps: int | None, is_refused: bool
) -> None:
    spec = dataclasses.replace(
        COMMAND.spec, strategy="torch_script", model="script:train.py", steps=steps
    )
    agent = connected(tmp_path, dataclasses.replace(COMMAND, spec=spec))
    agent.say(0, started())
    agent.say(0, RESULT)
    agent.say(1, dataclasses.replace(RESULT, timed_step_count=2))
    agent.exit(0)
    agent.exit(1)
    ended = agent.end()
    if is_refused:
        assert ended.failure is not None
        assert "got 3 timed ones on rank 0 and 2 on rank 1" in ended.failure.message
    else:
        assert ended.result is not None


@pytest.mark.parametrize("odd", [told_by(1, examples_count=None), RESULT])
def test_what_one_script_does_not_know_is_no_sum(agent: Agent, odd: TrainerResult) -> None:
    agent.say(0, started())
    agent.say(0, told_by(0))
    agent.say(1, odd)
    agent.exit(0)
    agent.exit(1)
    result = agent.end().result
    assert result is not None
    assert script_times(result).examples_count is None


def test_bytes_that_one_rank_did_not_count_are_not_known_of_the_agent(agent: Agent) -> None:
    agent.say(0, started())
    agent.say(0, RESULT)
    agent.say(1, dataclasses.replace(RESULT, payload_tx_bytes=None))
    agent.exit(0)
    agent.exit(1)
    result = agent.end().result
    assert result is not None
    assert (result.payload_tx_bytes, result.payload_rx_bytes) == (None, 2400)


def test_a_rank_that_fails_after_the_first_was_done_fails_the_agent(agent: Agent) -> None:
    agent.say(0, started())
    agent.say(0, RESULT)
    agent.exit(0)
    agent.say(1, RAISED)
    agent.exit(1, 1)
    assert agent.failure().kind is FailureKind.TRAINER_RAISED


def test_a_rank_that_hangs_after_the_first_was_done_fails_the_agent(agent: Agent) -> None:
    agent.say(0, started())
    agent.say(0, RESULT)
    agent.exit(0)
    agent.rank.tick(now=agent.now + 61.0)
    assert agent.failure().kind is FailureKind.STALLED


def test_a_rank_that_hangs_fails_the_agent_while_the_first_waits_for_it(agent: Agent) -> None:
    agent.say(0, started())
    agent.say(1, started())
    for _ in range(7):
        agent.now += 10.0
        agent.say(0, Progress(step_count=1))
        agent.rank.tick(now=agent.now)
    failure = agent.failure()
    assert failure.kind is FailureKind.STALLED
    assert failure.message == "process of rank 1: trainer said nothing for 60 s"


def test_a_model_that_differs_between_ranks_of_one_agent_is_refused(agent: Agent) -> None:
    agent.say(1, started(weights_checksum=1.5))
    agent.say(0, started(weights_checksum=1.0))
    failure = agent.failure()
    assert failure.kind is FailureKind.TRAINER_RAISED
    assert failure.message == (
        "model file:own.py: expected the same weights on every rank before the training, got "
        "others on rank 0 than on rank 1: give random generators a seed"
    )


def test_the_code_of_whichever_rank_hangs_before_the_first_step_is_named(agent: Agent) -> None:
    agent.say(0, UserCode(name="model file:own.py", is_running=False))
    agent.say(1, UserCode(name="model file:own.py", is_running=True))
    agent.rank.tick(now=agent.now + FIRST_STEP_S)
    failure = agent.failure()
    assert failure.kind is FailureKind.TRAINER_RAISED
    assert failure.message.startswith("process of rank 1: model file:own.py: expected its build")


@pytest.mark.parametrize("strategy", ["torch_ddp", "ps_sync", "ps_async", "torch_local_sgd"])
def test_the_figures_of_a_gang_are_the_same_however_its_ranks_are_spread_over_agents(
    strategy: str,
) -> None:
    facts = strategy_or_launcher(strategy).facts
    of_ranks = [
        dataclasses.replace(
            RESULT,
            timed_step_count=20,
            window_step_count=20,
            payload_tx_bytes=1_000 * rank,
            payload_rx_bytes=2_000 * rank,
            peak_flop_per_s=1e12,
            peak_device_memory_bytes=1000 + rank,
            data_wait_s=0.5 * rank,
            profile=StepProfile(
                step_count=10,
                step_time_s=0.5,
                compute_s=0.125 * rank,
                communication_s=0.5 - 0.125 * rank,
            ),
            exchange=Exchange(
                update_count=20,
                push_s=0.25 * rank,
                pull_s=0.5,
                staleness_counts=None if facts.is_synchronous else (20 - rank, rank),
            ),
        )
        for rank in range(4)
    ]
    clocks = range(1 if facts.is_synchronous else 4)
    found = []
    for each in (1, 2, 4):
        agents = [
            RankOutcome(
                rank=place,
                result=result_of_ranks(
                    of_ranks[each * place : each * (place + 1)],
                    is_synchronous=facts.is_synchronous,
                ),
                timed_begun_s=1.0,
                samples=(),
            )
            for place in range(4 // each)
        ]
        figures = AttemptFigures(
            spec=job_spec(
                strategy=strategy,
                world_size=4,
                global_batch_size=66,
                server_count=int(facts.uses_servers),
                axes={"ranks_per_agent": each},
            ),
            ranks=agents,
            timed_steps_s={rank: [0.5 + 0.125 * rank] * 20 for rank in clocks},
            train_examples_count=1437,
            is_synchronous=facts.is_synchronous,
            dataset=dataset_facts("digits"),
            size=model_size("mlp", "digits"),
        )
        values = measure(figures).values
        # What is taken of samples is of agents, and adds up the memory of their ranks.
        found.append({name: value for name, value in values.items() if name != "resident_bytes"})
    assert found[0] == found[1] == found[2]
    assert None not in (found[0]["throughput_examples_per_s"], found[0]["utilisation_ratio"])
