"""What is refused once is not asked again: the same placements as if every job were asked."""

from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from farm.gang.snapshots import GangAtWork, LiveAgent, WaitingJob
from farm.placement.agent_index import SHARES_CORES
from farm.placement.scheduling import Placement, UnplaceableRequests, place

_RESERVE_AFTER_S = 60.0
_LENGTHS_S = st.sampled_from([None, 5.0, 20.0, 50.0, 400.0])
_ROLES = st.sampled_from([frozenset({("role", "a")}), frozenset({("role", "b")}), frozenset()])
_AGENT_IDS = [f"agent-{i}" for i in range(10)]


@st.composite
def _farms(draw: st.DrawFn) -> tuple[list[LiveAgent], list[GangAtWork]]:
    """Some agents at work, in gangs of one whose lengths are known or not; some farms overlap."""
    agents, gangs = [], []
    share_machines = draw(st.booleans())
    for agent_id in draw(st.lists(st.sampled_from(_AGENT_IDS), unique=True)):
        is_idle = draw(st.booleans())
        agents.append(
            LiveAgent(
                agent_id=agent_id,
                machine_id=draw(st.sampled_from(["m", "n"])) if share_machines else agent_id,
                cpus=draw(st.frozensets(st.integers(0, 4), min_size=1, max_size=2)),
                capabilities=frozenset({SHARES_CORES} if draw(st.booleans()) else ()),
                labels=draw(_ROLES),
                framework_version=draw(st.sampled_from(["2.21.0", "2.20.0"])),
                is_idle=is_idle,
                is_occupying=not is_idle,
            )
        )
        if not is_idle:
            gangs.append(
                GangAtWork(
                    sweep_id=draw(st.integers(0, 2)),
                    agent_ids=(agent_id,),
                    age_s=draw(st.sampled_from([0.0, 15.0, 30.0])),
                    expected_s=draw(_LENGTHS_S),
                )
            )
    return agents, gangs


_QUEUES = st.lists(
    st.builds(
        WaitingJob,
        job_id=st.integers(1, 1000),
        sweep_id=st.integers(0, 2),
        agent_count=st.integers(1, 4),
        labels=_ROLES,
        avoid=st.one_of(st.just(frozenset()), st.frozensets(st.sampled_from(_AGENT_IDS))),
        priority=st.sampled_from([0, 0, 1]),
        waited_s=st.sampled_from([0.0, 59.9, 60.0, 500.0, 5000.0]),
        expected_s=_LENGTHS_S,
    ),
    min_size=3,
    max_size=40,
    unique_by=lambda job: job.job_id,
)


def _place(
    jobs: list[WaitingJob], farm: tuple[list[LiveAgent], list[GangAtWork]]
) -> list[Placement]:
    agents, gangs = farm
    return place(jobs, agents, reserve_after_s=_RESERVE_AFTER_S, gangs=gangs)


_ONE_IDLE = [
    LiveAgent(
        agent_id=agent_id,
        machine_id=agent_id,
        cpus=frozenset({0}),
        is_idle=is_idle,
        is_occupying=not is_idle,
    )
    for agent_id, is_idle in (("agent-0", True), ("agent-1", False))
]
_OF_UNKNOWN_LENGTH = [GangAtWork(sweep_id=1, agent_ids=("agent-1",), age_s=1.0)]
# The second wants what the first did, and may have agents held for it since it is due.
_DUE_BEHIND_ONE_THAT_IS_NOT = [
    WaitingJob(job_id=1, sweep_id=0, agent_count=2),
    WaitingJob(job_id=2, sweep_id=1, agent_count=2, waited_s=500.0),
    WaitingJob(job_id=3, sweep_id=1, agent_count=1),
]


def _sharing(agent_id: str, label: str, cpus: set[int], *, is_idle: bool = True) -> LiveAgent:
    return LiveAgent(
        agent_id=agent_id,
        machine_id="m" if is_idle else "n",
        cpus=frozenset(cpus),
        labels=frozenset({("role", label)}),
        capabilities=frozenset({SHARES_CORES}),
        is_idle=is_idle,
        is_occupying=not is_idle,
    )


# Their cores overlap like the links of a chain: with one agent fewer a gang of two is found.
_CHAINED = [
    _sharing("a", "a", {1, 2, 3}),
    _sharing("b", "a", {1, 4, 5}),
    _sharing("c", "a", {2, 6, 7}),
    _sharing("p", "p", {3}),
    _sharing("q1", "q", {4}),
    _sharing("q2", "x", {5}),
    _sharing("r1", "q", {6}),
    _sharing("r2", "x", {7}),
    _sharing("s", "a", {0}, is_idle=False),
]
_ALL_BUT_ONE_FOR_THE_CHAIN = [
    WaitingJob(
        job_id=job_id,
        agent_count=agent_count,
        labels=frozenset({("role", label)}),
        waited_s=50.0 - job_id,
    )
    for job_id, agent_count, label in (
        (1, 4, "a"),
        (2, 2, "a"),
        (3, 4, "a"),
        (4, 1, "p"),
        (5, 2, "a"),
    )
]


@given(_QUEUES, _farms())
@example(
    _ALL_BUT_ONE_FOR_THE_CHAIN, (_CHAINED, [GangAtWork(sweep_id=9, agent_ids=("s",), age_s=0.0)])
)
@example(_DUE_BEHIND_ONE_THAT_IS_NOT, (_ONE_IDLE, _OF_UNKNOWN_LENGTH))
def test_asking_the_same_again_would_change_nothing(
    jobs: list[WaitingJob], farm: tuple[list[LiveAgent], list[GangAtWork]]
) -> None:
    placements = _place(jobs, farm)
    with mock.patch.object(UnplaceableRequests, "is_again", return_value=False):
        assert _place(jobs, farm) == placements
