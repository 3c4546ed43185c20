import dataclasses
import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from farm.gang.snapshots import LiveAgent, WaitingJob
from farm.placement.scheduling import Placement, explain, place

RESERVE_AFTER_S = 60.0
CAPABILITIES = st.frozensets(st.sampled_from(["netem", "gpu"]))
LABELS = st.frozensets(st.sampled_from([("type", "small"), ("type", "large"), ("zone", "1")]))
VERSIONS = st.sampled_from(["2.21.0", "2.21.0", "2.20.0", None])
FINGERPRINTS = st.sampled_from(["x", "y"])


@st.composite
def farms(draw: st.DrawFn) -> list[LiveAgent]:
    """Agents on a few machines, whose CPU sets may overlap."""
    agents = []
    for i in range(draw(st.integers(0, 8))):
        state = draw(st.sampled_from(["idle", "idle", "busy", "drained"]))
        agents.append(
            LiveAgent(
                agent_id=f"agent-{i}",
                machine_id=draw(st.sampled_from(["m1", "m2", f"own-{i}", f"own-{i}"])),
                cpus=draw(st.frozensets(st.integers(0, 5), min_size=1, max_size=3)),
                capabilities=draw(CAPABILITIES),
                labels=draw(LABELS),
                fingerprint=draw(FINGERPRINTS),
                framework_version=draw(VERSIONS),
                is_idle=state == "idle",
                is_occupying=state == "busy",
            )
        )
    return agents


AGENT_IDS = st.sampled_from([f"agent-{i}" for i in range(8)])
QUEUES = st.lists(
    st.builds(
        WaitingJob,
        job_id=st.integers(1, 1000),
        agent_count=st.integers(1, 5),
        requires=CAPABILITIES,
        labels=LABELS,
        avoid=st.frozensets(AGENT_IDS, max_size=1),
        measured_by=st.dictionaries(AGENT_IDS, st.integers(1, 3), max_size=3),
        measured_on=st.frozensets(FINGERPRINTS),
        priority=st.integers(-1, 1),
        waited_s=st.sampled_from([0.0, 10.0, 59.9, 60.0, 500.0]),
    ),
    max_size=10,
    unique_by=lambda job: job.job_id,
)


def decide(jobs: list[WaitingJob], agents: list[LiveAgent]) -> list[Placement]:
    return place(jobs, agents, reserve_after_s=RESERVE_AFTER_S)


def satisfies(agent: LiveAgent, job: WaitingJob) -> bool:
    return job.requires <= agent.capabilities and job.labels <= agent.labels


def usable(job: WaitingJob, agents: list[LiveAgent]) -> list[LiveAgent]:
    """Those that suit and, if the job has several ranks, have enough others of their version."""
    suiting = [agent for agent in agents if satisfies(agent, job)]
    counts = Counter(agent.framework_version for agent in suiting)
    if job.agent_count == 1:
        return suiting
    return [a for a in suiting if counts[a.framework_version] >= job.agent_count]


def overlap(a: LiveAgent, b: LiveAgent) -> bool:
    is_beside = a is not b and a.machine_id == b.machine_id
    return is_beside and not (a.cpus.isdisjoint(b.cpus) and a.gpus.isdisjoint(b.gpus))


def precedence(job: WaitingJob) -> tuple[float, float, int]:
    return -job.priority, -job.waited_s, job.job_id


@given(QUEUES, farms())
def test_gangs_are_whole_idle_capable_and_disjoint(
    jobs: list[WaitingJob], agents: list[LiveAgent]
) -> None:
    by_job = {job.job_id: job for job in jobs}
    by_agent = {agent.agent_id: agent for agent in agents}
    placements = decide(jobs, agents)
    used = [by_agent[agent_id] for p in placements for agent_id in p.agent_ids]
    assert len({p.job_id for p in placements}) == len(placements)
    assert len({agent.agent_id for agent in used}) == len(used)
    for placement in placements:
        job = by_job[placement.job_id]
        assert len(placement.agent_ids) == job.agent_count
        assert all(satisfies(by_agent[agent_id], job) for agent_id in placement.agent_ids)
        assert len({by_agent[agent_id].framework_version for agent_id in placement.agent_ids}) == 1
    assert all(agent.is_idle for agent in used)
    working = used + [agent for agent in agents if agent.is_occupying]
    assert not any(overlap(a, b) for a in used for b in working)


@given(
    st.lists(st.integers(1, 3), max_size=6),
    st.lists(st.frozensets(st.sampled_from(["GPU-1", "GPU-2", "GPU-3"]), max_size=2), max_size=8),
)
def test_no_gpu_of_a_machine_is_given_to_two_agents(
    widths: list[int], gpus: list[frozenset[str]]
) -> None:
    agents = [
        LiveAgent(
            agent_id=f"agent-{i}",
            machine_id="m",
            cpus=frozenset({i}),
            gpus=own,
            is_idle=i % 4 != 3,
            is_occupying=i % 4 == 3,
        )
        for i, own in enumerate(gpus)
    ]
    jobs = [WaitingJob(job_id=i, agent_count=width) for i, width in enumerate(widths, start=1)]
    by_agent = {agent.agent_id: agent for agent in agents}
    used = [by_agent[agent_id] for p in decide(jobs, agents) for agent_id in p.agent_ids]
    working = used + [agent for agent in agents if agent.is_occupying]
    assert not any(overlap(a, b) for a in used for b in working)
    if widths.count(1) >= len(agents) and not any(gpus):
        assert len(working) == len(agents), "cores and GPUs of their own hinder nobody"


@given(QUEUES, farms(), st.sampled_from([-500.0, 10.0, 60.0]))
def test_waits_may_be_told_of_another_instant(
    jobs: list[WaitingJob], agents: list[LiveAgent], more_s: float
) -> None:
    earlier = [dataclasses.replace(job, waited_s=job.waited_s - more_s) for job in jobs]
    found = place(earlier, agents, reserve_after_s=RESERVE_AFTER_S, waited_more_s=more_s)
    assert found == decide(jobs, agents)


@given(QUEUES, farms(), st.randoms(use_true_random=False))
def test_the_order_of_the_inputs_does_not_matter(
    jobs: list[WaitingJob], agents: list[LiveAgent], rng: random.Random
) -> None:
    shuffled_jobs, shuffled_agents = jobs.copy(), agents.copy()
    rng.shuffle(shuffled_jobs)
    rng.shuffle(shuffled_agents)
    assert decide(jobs, agents) == decide(shuffled_jobs, shuffled_agents)
    assert explain(jobs, agents, reserve_after_s=RESERVE_AFTER_S) == explain(
        shuffled_jobs, shuffled_agents, reserve_after_s=RESERVE_AFTER_S
    )


@given(QUEUES, farms())
def test_a_job_behind_others_changes_nothing_for_them(
    jobs: list[WaitingJob], agents: list[LiveAgent]
) -> None:
    ordered = sorted(jobs, key=precedence)
    placements = decide(jobs, agents)
    for i in range(len(ordered)):
        ahead = {job.job_id for job in ordered[:i]}
        expected = [p for p in placements if p.job_id in ahead]
        assert decide(ordered[:i], agents) == expected


@given(QUEUES, farms())
def test_nobody_behind_an_overdue_job_takes_an_agent_that_it_could_use(
    jobs: list[WaitingJob], agents: list[LiveAgent]
) -> None:
    # Without overlaps the width of the farm for a job is a plain count.
    agents = [a for a in agents if not any(overlap(a, b) for b in agents)]
    placements = {p.job_id: p for p in decide(jobs, agents)}
    by_agent = {agent.agent_id: agent for agent in agents}
    for job in jobs:
        kept = usable(job, [a for a in agents if a.is_idle or a.is_occupying])
        is_possible = len(kept) >= job.agent_count
        if job.job_id in placements or job.waited_s < RESERVE_AFTER_S or not is_possible:
            continue
        for later in jobs:
            if precedence(later) > precedence(job) and later.job_id in placements:
                gang = placements[later.job_id].agent_ids
                assert not any(by_agent[agent_id] in kept for agent_id in gang)


@given(QUEUES, farms())
def test_a_job_wider_than_the_farm_changes_nothing_for_anybody(
    jobs: list[WaitingJob], agents: list[LiveAgent]
) -> None:
    too_wide = WaitingJob(
        job_id=2000, agent_count=len(agents) + 1, priority=9, waited_s=10 * RESERVE_AFTER_S
    )
    assert decide([*jobs, too_wide], agents) == decide(jobs, agents)


@given(QUEUES, farms())
def test_an_idle_agent_is_left_over_only_for_a_reason(
    jobs: list[WaitingJob], agents: list[LiveAgent]
) -> None:
    """Where no job is overdue and nobody shares cores, what still fits is not left waiting."""
    jobs = [job for job in jobs if job.waited_s < RESERVE_AFTER_S and not job.avoid]
    agents = [a for a in agents if not any(overlap(a, b) for b in agents)]
    placements = decide(jobs, agents)
    used = {agent_id for p in placements for agent_id in p.agent_ids}
    placed = {p.job_id for p in placements}
    for job in jobs:
        left = usable(job, [a for a in agents if a.is_idle and a.agent_id not in used])
        assert job.job_id in placed or len(left) < job.agent_count


@given(QUEUES, farms())
def test_who_has_measured_a_cell_decides_who_is_taken_but_never_whether(
    jobs: list[WaitingJob], agents: list[LiveAgent]
) -> None:
    """For one job at a time: which agents it takes may matter to those behind it."""
    for job in jobs:
        indifferent = dataclasses.replace(job, measured_by={}, measured_on=frozenset())
        assert len(decide([job], agents)) == len(decide([indifferent], agents))


@settings(max_examples=50)
@given(QUEUES, farms())
def test_every_job_is_either_placed_or_told_why_it_waits(
    jobs: list[WaitingJob], agents: list[LiveAgent]
) -> None:
    placed = {p.job_id for p in decide(jobs, agents)}
    reasons = explain(jobs, agents, reserve_after_s=RESERVE_AFTER_S)
    assert set(reasons) == {job.job_id for job in jobs} - placed
    assert all(text and "\n" not in text for text in reasons.values())
