"""What is judged wrong, what doubtful, and that each says what to do."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from farm.diagnosis import agents as of_agents
from farm.diagnosis.agents import AgentCondition, LossCounts, judge_access, judge_ports
from farm.diagnosis.broker import BrokerState, judge_broker
from farm.diagnosis.finding import Finding, Level, list_names, worst
from farm.diagnosis.jobs import judge_noise, judge_queue
from farm.diagnosis.server import (
    DatabaseState,
    ProcessState,
    judge_collector,
    judge_database,
    judge_scheduler,
    judge_server_clocks,
)
from farm.gang.snapshots import LiveAgent, WaitingJob
from farm.messages.agents import AgentState
from farm.placement.agent_index import kind_of
from farm.placement.scheduling import UnschedulableReasons
from tests.facts import lacking

VERSION = "1.0"
BROKER = BrokerState(
    shown_url="redis://broker:6379/0",
    is_local=False,
    version="7.2.4",
    latency_s=0.0004,
    refuses_strangers=True,
    keeps_log=True,
    keeps_snapshots=False,
    eviction="noeviction",
    used_bytes=1_000_000,
    client_count=5,
    client_limit=10_000,
)
DATABASE = DatabaseState(
    shown_url="postgresql://db/farm",
    version="PostgreSQL 16.2",
    schema="first_release",
    answer_s=0.002,
    byte_count=12_000_000,
    write_error=None,
    clock_offset_s=0.01,
)
AGENT = AgentCondition(
    agent_id="a1",
    is_live=True,
    silent_s=1.0,
    state=AgentState.IDLE,
    clock_offset_s=0.02,
    benchfarm_version=VERSION,
    tensorflow_version="2.21.0",
    capabilities=("network", "tensorflow", "torch", "closes_ports", "trainer_user"),
    backlog_count=0,
    backlog_bytes=0,
    disk_free_bytes=50_000_000_000,
)
PROCESS = ProcessState(
    name="scheduler on host (process 7)",
    benchfarm_version=VERSION,
    silent_s=2.0,
    worked_s=0.5,
    up_s=3600.0,
    trouble=None,
    clock_offset_s=0.0,
)
NO_LOSSES = LossCounts(lost_attempts=0, late_reports=0, reasons={})


def agent(agent_id: str = "a1", **changes: Any) -> AgentCondition:
    return dataclasses.replace(AGENT, agent_id=agent_id, **changes)


def assert_one(found: list[Finding], level: Level, *words: str) -> None:
    """Exactly one finding is not well; it has the level, the words and something to do."""
    [bad] = [finding for finding in found if finding.level is not Level.WELL]
    assert bad.level is level
    assert bad.remedy
    for word in words:
        assert word in bad.what


def all_judgements() -> list[list[Finding]]:
    """What a farm in order is told."""
    agents = [agent("a1"), agent("a2")]
    return [
        judge_broker(BROKER),
        judge_database(DATABASE),
        judge_scheduler([PROCESS], version=VERSION),
        judge_collector([PROCESS], beat_count=3, report_count=1, of_agents={}, version=VERSION),
        judge_server_clocks([PROCESS, PROCESS]),
        of_agents.judge_heartbeats(agents),
        of_agents.judge_versions(agents, version=VERSION, wire_version=6, strangers={}),
        of_agents.judge_clocks(agents),
        of_agents.judge_capabilities(agents),
        judge_ports(agents),
        judge_access(agents, keyed={"a1", "a2"}, is_beyond=True),
        of_agents.judge_spools(agents),
        of_agents.judge_leases(agents, NO_LOSSES),
        judge_noise({}, measured_count=8),
        of_agents.judge_agent_disks(agents),
        judge_queue(waiting_count=3, unschedulable={}),
    ]


def test_an_agent_that_sends_more_than_its_quota_is_named_with_what_to_do() -> None:
    found = of_agents.judge_quotas({"vm-1": 2, "vm-2": 900})
    assert [finding.what.split()[0] for finding in found] == ["vm-2", "vm-1"]
    assert "900 messages" in found[0].what
    assert "farm agent remove vm-2" in (found[0].remedy or "")
    assert of_agents.judge_quotas({}) == []


@pytest.mark.parametrize(
    ("changes", "beat_count", "level"),
    [
        ({"worked_s": 200.0}, 1, Level.WRONG),
        ({"worked_s": None}, 1, Level.WRONG),  # it is up for an hour
        ({"worked_s": 200.0}, 0, Level.WELL),  # nobody sends anything
        ({"worked_s": 20.0}, 1, Level.WELL),
        ({"worked_s": None, "up_s": 3.0}, 1, Level.WELL),
    ],
)
def test_a_collector_that_lives_has_to_take_what_waits(
    changes: dict[str, Any], beat_count: int, level: Level
) -> None:
    process = dataclasses.replace(PROCESS, **changes)
    found = judge_collector(
        [process], beat_count=beat_count, report_count=0, of_agents={}, version=VERSION
    )
    assert worst(found) is level
    if level is Level.WRONG:
        assert_one(found, level, "has stored nothing for", "although 1 heartbeat and 0 batches")


def test_of_two_collectors_the_one_that_is_stuck_is_named() -> None:
    stuck = dataclasses.replace(PROCESS, name="collector on b (process 8)", worked_s=200.0)
    found = judge_collector(
        [PROCESS, stuck], beat_count=1, report_count=0, of_agents={}, version=VERSION
    )
    assert_one(found, Level.WRONG, "collector on b (process 8) has stored nothing for 3 min 22 s")


def test_a_farm_in_order_is_well_in_every_part() -> None:
    for found in all_judgements():
        assert worst(found) is Level.WELL, found
        assert all(finding.remedy is None for finding in found)


def test_who_has_no_key_and_whose_trainers_are_the_agent_is_named_beyond_loopback() -> None:
    plain = agent("a2", capabilities=("network",))
    assert_one(
        judge_access([agent(), agent("a3")], keyed={"a1"}, is_beyond=True),
        Level.WRONG,
        "without a valid key: a3",
    )
    found = judge_access([agent(), plain], keyed={"a1", "a2"}, is_beyond=True)
    assert_one(found, Level.DOUBT, "the agent's own user, and can read its files: a2")
    assert worst(judge_access([plain], keyed=(), is_beyond=False)) is Level.WELL
    silent = dataclasses.replace(plain, is_live=False)
    assert worst(judge_access([silent], keyed={"a2"}, is_beyond=True)) is Level.WELL


def test_who_leaves_its_ports_open_is_named() -> None:
    found = judge_ports([agent(), agent("a2", capabilities=("network",))])
    assert_one(found, Level.DOUBT, "the trainers' ports of a2")


def test_machines_cloned_from_one_image_are_named() -> None:
    def of(agent_id: str, **changes: Any) -> AgentCondition:
        cpus = frozenset({0, 1})
        own = {"machine_id": "image", "address": f"{agent_id}.farm", "cpus": cpus, **changes}
        return agent(agent_id, **own)

    found = of_agents.judge_machines([of("a1"), of("a2"), of("a3", machine_id="its own")])
    assert_one(found, Level.DOUBT, "a1, a2", "same machine id")
    assert found[0].remedy is not None
    assert "systemd-machine-id-setup" in found[0].remedy
    for second in (
        of("a2", address="a1.farm"),
        of("a2", cpus=frozenset({2, 3})),
        of("a2", machine_id="its own"),
        of("a2", is_live=False),
    ):
        assert of_agents.judge_machines([of("a1"), second]) == []
    sharing = ("shares_cores",)
    both = [of("a1", capabilities=sharing), of("a2", capabilities=sharing)]
    assert of_agents.judge_machines(both) == []


@pytest.mark.parametrize(
    ("changes", "level", "word"),
    [
        ({"version": "5.0.7"}, Level.WRONG, "too old"),
        ({"latency_s": 0.2}, Level.DOUBT, "200 ms"),
        ({"refuses_strangers": False}, Level.WRONG, "no password"),
        ({"keeps_log": False}, Level.DOUBT, "keeps nothing at all"),
        ({"keeps_log": False, "keeps_snapshots": True}, Level.DOUBT, "loses its queued messages"),
        ({"last_write_failed": True}, Level.WRONG, "disk"),
        ({"eviction": "allkeys-lru"}, Level.WRONG, "allkeys-lru"),
        ({"limit_bytes": 1_100_000}, Level.WRONG, "1.00 MB of 1.10 MB"),
        ({"client_count": 9500}, Level.WRONG, "9500 of 10000"),
        ({"version": None, "forbidden": ("INFO",)}, Level.DOUBT, "'default' may not run INFO"),
    ],
)
def test_a_broker_that_cannot_be_relied_on(
    changes: dict[str, Any], level: Level, word: str
) -> None:
    assert_one(judge_broker(dataclasses.replace(BROKER, **changes)), level, word)


def test_what_a_hosted_broker_does_not_tell_is_not_judged() -> None:
    silent = dataclasses.replace(
        BROKER, refuses_strangers=None, keeps_log=None, eviction=None, client_limit=None
    )
    assert worst(judge_broker(silent)) is Level.WELL


def test_whether_snapshots_are_kept_matters_only_without_a_log() -> None:
    hidden = dataclasses.replace(BROKER, forbidden=("CONFIG GET",))
    assert worst(judge_broker(hidden)) is Level.WELL
    found = judge_broker(dataclasses.replace(hidden, keeps_log=False, keeps_snapshots=None))
    assert any("may not run CONFIG GET" in finding.what for finding in found)
    assert not any("keeps nothing at all" in finding.what for finding in found)


def test_on_loopback_a_broker_needs_no_password() -> None:
    local = dataclasses.replace(BROKER, is_local=True, refuses_strangers=False)
    assert worst(judge_broker(local)) is Level.WELL


@pytest.mark.parametrize(
    ("changes", "level", "word"),
    [
        ({"write_error": "disk is full"}, Level.WRONG, "disk is full"),
        ({"answer_s": 3.0}, Level.DOUBT, "3.00 s"),
        ({"clock_offset_s": -90.0}, Level.DOUBT, "1 min 30 s behind"),
        ({"missing_days": 2}, Level.DOUBT, "2 of the days"),
    ],
)
def test_a_database_that_is_in_trouble(changes: dict[str, Any], level: Level, word: str) -> None:
    assert_one(judge_database(dataclasses.replace(DATABASE, **changes)), level, word)


def test_nobody_who_schedules_or_collects_is_wrong() -> None:
    assert_one(judge_scheduler([], version=VERSION), Level.WRONG, "no scheduler runs")
    found = judge_collector([], beat_count=40, report_count=1, of_agents={}, version=VERSION)
    assert_one(found, Level.WRONG, "no collector runs: 40 heartbeats and 1 batch of reports wait")


@pytest.mark.parametrize(
    ("changes", "level", "word"),
    [
        ({"trouble": "database is away"}, Level.WRONG, "database is away"),
        ({"worked_s": 60.0}, Level.WRONG, "no round for 1 min 2 s"),
        ({"worked_s": None}, Level.WRONG, "no round for 1 h"),
        ({"benchfarm_version": "0.9"}, Level.DOUBT, "0.9"),
    ],
)
def test_a_scheduler_that_runs_and_does_nothing(
    changes: dict[str, Any], level: Level, word: str
) -> None:
    state = dataclasses.replace(PROCESS, **changes)
    assert_one(judge_scheduler([state], version=VERSION), level, word)


@pytest.mark.parametrize("processes", [[], [PROCESS]])
def test_a_backlog_that_is_mostly_of_one_agent_names_it(processes: list[ProcessState]) -> None:
    of_agents = {"a1": 5, "vm-7": 150}
    found = judge_collector(
        processes, beat_count=55, report_count=200, of_agents=of_agents, version=VERSION
    )
    named = [finding.what for finding in found if not lacking(finding.what, "vm-7", "150 messages")]
    assert len(named) == 1
    of_agents = {"a1": 125, "vm-7": 125}
    found = judge_collector(
        processes, beat_count=55, report_count=200, of_agents=of_agents, version=VERSION
    )
    assert not any("most of what waits" in finding.what for finding in found)


def test_of_many_agents_more_heartbeats_may_wait() -> None:
    for beat_count, level in ((180, Level.WELL), (220, Level.DOUBT)):
        found = judge_collector(
            [PROCESS],
            beat_count=beat_count,
            report_count=0,
            of_agents={},
            agent_count=1000,
            version=VERSION,
        )
        assert worst(found) is level


def test_a_few_messages_are_nobodys_fault() -> None:
    found = judge_collector(
        [PROCESS], beat_count=3, report_count=0, of_agents={"a1": 3}, version=VERSION
    )
    assert worst(found) is Level.WELL


def test_a_collector_that_is_behind() -> None:
    found = judge_collector([PROCESS], beat_count=51, report_count=0, of_agents={}, version=VERSION)
    assert_one(found, Level.DOUBT, "51 heartbeats")


def test_scheduler_and_collector_need_clocks_that_agree() -> None:
    ahead = dataclasses.replace(PROCESS, name="collector", clock_offset_s=3.0)
    assert_one(judge_server_clocks([PROCESS, ahead]), Level.WRONG, "3.00 s apart")


def test_without_a_living_agent_nothing_can_be_measured() -> None:
    assert_one(of_agents.judge_heartbeats([]), Level.WRONG, "no agent has ever reported")
    gone = agent(is_live=False, silent_s=200_000.0)
    assert_one(of_agents.judge_heartbeats([gone]), Level.WRONG, "no agent is alive")


@pytest.mark.parametrize(
    ("changes", "level", "word"),
    [
        ({"is_live": False, "silent_s": 90.0}, Level.DOUBT, "a2 for 1 min 30 s"),
        ({"is_live": False, "silent_s": None}, Level.DOUBT, "not known to be alive: a2"),
        ({"trouble": "tc: not permitted"}, Level.WRONG, "a2 takes no rank: tc: not permitted"),
        ({"is_drained": True}, Level.DOUBT, "a2"),
    ],
)
def test_an_agent_that_does_not_work(changes: dict[str, Any], level: Level, word: str) -> None:
    found = of_agents.judge_heartbeats([agent(), agent("a2", **changes)])
    assert_one(found, level, word)


def test_an_agent_that_is_gone_for_days_is_no_news() -> None:
    found = of_agents.judge_heartbeats([agent(), agent("a2", is_live=False, silent_s=200_000.0)])
    assert worst(found) is Level.WELL


def test_versions_that_differ() -> None:
    def judge(*agents: AgentCondition, **strangers: int) -> list[Finding]:
        return of_agents.judge_versions(
            agents, version=VERSION, wire_version=6, strangers=strangers
        )

    assert_one(judge(agent(), old=5), Level.WRONG, "old speaks wire version 5, and this farm 6")
    assert_one(judge(agent(benchfarm_version="0.9")), Level.DOUBT, "a1 0.9")
    mixed = judge(agent(), agent("a2"), agent("a3", tensorflow_version="2.20.0"))
    assert_one(mixed, Level.DOUBT, "2 with 2.21.0, 1 with 2.20.0")


def test_a_clock_that_is_off_is_named_with_its_side() -> None:
    found = of_agents.judge_clocks([agent(), agent("a2", clock_offset_s=-3600.0)])
    assert_one(found, Level.DOUBT, "a2's clock is 1 h behind")


def test_what_nobody_can_do() -> None:
    alone = of_agents.judge_capabilities([agent(capabilities=("tcp_proxy", "tensorflow"))])
    assert_one(alone, Level.DOUBT, "no agent can shape networks")
    bare = agent("a2", tensorflow_version=None, capabilities=())
    found = of_agents.judge_capabilities([agent(), bare])
    assert_one(found, Level.DOUBT, "without TensorFlow and PyTorch: a2")


@pytest.mark.parametrize(
    ("changes", "level", "word"),
    [
        ({"state": AgentState.SPOOL_FULL}, Level.WRONG, "spool is full"),
        ({"report_lag_s": 40.0, "backlog_count": 7}, Level.DOUBT, "7 reports"),
        ({"report_lag_s": 4000.0, "backlog_count": 7}, Level.WRONG, "1 h 7 min"),
    ],
)
def test_reports_that_do_not_arrive(changes: dict[str, Any], level: Level, word: str) -> None:
    assert_one(of_agents.judge_spools([agent(**changes)]), level, word)


def test_a_lease_that_nobody_takes_away() -> None:
    held = agent(attempt_id=7, lease_left_s=-40.0)
    assert_one(of_agents.judge_leases([held], NO_LOSSES), Level.WRONG, "attempt 7 ran out 40.0 s")
    just_over = agent(attempt_id=7, lease_left_s=-2.0)
    assert worst(of_agents.judge_leases([just_over], NO_LOSSES)) is Level.WELL


def test_what_was_lost_lately_is_named_with_its_reasons() -> None:
    lost = LossCounts(lost_attempts=3, late_reports=0, reasons={"from a1": 2, "from a2": 1})
    words = ("3 attempts", "from a1, 2 times, from a2")
    assert_one(of_agents.judge_leases([], lost), Level.DOUBT, *words)
    late = LossCounts(lost_attempts=0, late_reports=1, reasons={})
    assert_one(of_agents.judge_leases([], late), Level.DOUBT, "1 report of the last hour came late")


def test_attempts_that_were_void_for_what_else_used_the_machine() -> None:
    found = judge_noise({"steal": 2, "others were busy": 5}, measured_count=20)
    assert_one(found, Level.DOUBT, "7 of 27 attempts", "void", "(others were busy)")
    assert "FARM_NOISE_POLICY=flag" in str(found[0].remedy)


def test_a_disk_that_fills_up() -> None:
    assert_one(
        of_agents.judge_agent_disks([agent(disk_free_bytes=500_000_000)]), Level.DOUBT, "500 MB"
    )
    assert_one(of_agents.judge_agent_disks([agent(disk_free_bytes=1000)]), Level.WRONG, "a1's")


def test_jobs_that_nobody_can_serve_are_told_by_their_reason() -> None:
    jobs = [
        WaitingJob(job_id=1, agent_count=1, waited_s=9.0),
        WaitingJob(job_id=2, agent_count=3),
        WaitingJob(job_id=3, agent_count=3),
        WaitingJob(job_id=4, agent_count=1, requires=frozenset({"gpu"})),
    ]
    busy = LiveAgent(
        agent_id="a1",
        machine_id="m",
        cpus=frozenset({0}),
        is_idle=False,
        is_occupying=True,
    )
    unschedulable = UnschedulableReasons([busy])
    reasons = {job.job_id: reason for job in jobs if (reason := unschedulable.of(kind_of(job)))}
    assert set(reasons) == {2, 3, 4}  # the first waits for its turn
    found = judge_queue(waiting_count=4, unschedulable=reasons)
    assert [finding.level for finding in found] == [Level.DOUBT, Level.DOUBT]
    several, one = (finding.what for finding in found)
    assert lacking(several, "2 jobs", "such as 2", "needs 3 agents", "has 1") == []
    assert lacking(one, "job 4", "'gpu'") == []


def test_agents_without_tensorflow_are_named() -> None:
    torch = agent("t", tensorflow_version=None, capabilities=("torch", "torch:2.13.0"))
    own = agent("o", tensorflow_version=None, capabilities=("tensorflow",))
    nothing = agent("n", tensorflow_version=None, capabilities=())
    found = of_agents.judge_capabilities([torch, own, nothing])
    assert [finding.what for finding in found[1:]] == [
        "without TensorFlow: t",
        "without TensorFlow and PyTorch: n",
    ]


def test_jobs_that_wait_for_the_end_of_a_pause_have_no_turn() -> None:
    [turns] = judge_queue(waiting_count=3, held_count=2, unschedulable={})
    assert lacking(turns.what, "1 job", "turn", "2 more jobs", "pause") == []
    [free] = judge_queue(waiting_count=3, unschedulable={})
    assert lacking(free.what, "3 jobs", "turn") == []
    assert "pause" not in free.what


def test_many_names_are_cut_short() -> None:
    assert list_names([str(n) for n in range(7)]) == "0, 1, 2, 3, 4 and 2 more"
