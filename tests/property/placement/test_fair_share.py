"""The order of the queue and what rests on expected lengths, on farms of equal agents."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.server.schedule_sim import longest_drought_s, makespan_s, simulate
from benchmarks.server.traces import TracedJob, lower_bound_s
from farm.gang.snapshots import GangAtWork, LiveAgent, WaitingJob
from farm.placement.fair_share import FairShareOrder, TurnGroup, choose_by_turns
from farm.placement.scheduling import place

LENGTHS_S = st.sampled_from([1.0, 5.0, 20.0, 100.0])
AGENT_COUNT = 8


@st.composite
def traces(draw: st.DrawFn) -> list[TracedJob]:
    count = draw(st.integers(1, 14))
    return [
        TracedJob(
            job_id=i,
            sweep_id=draw(st.integers(1, 3)),
            cell=i,
            agent_count=draw(st.sampled_from([1, 2, 4, 8])),
            length_s=draw(LENGTHS_S),
        )
        for i in range(1, count + 1)
    ]


def farm() -> list[LiveAgent]:
    return [
        LiveAgent(
            agent_id=f"a{i}",
            machine_id=f"m{i}",
            cpus=frozenset({0}),
            is_idle=True,
            is_occupying=False,
        )
        for i in range(AGENT_COUNT)
    ]


def waiting(jobs: list[TracedJob]) -> list[WaitingJob]:
    return [
        WaitingJob(
            job_id=job.job_id,
            sweep_id=job.sweep_id,
            agent_count=job.agent_count,
            expected_s=job.length_s,
        )
        for job in jobs
    ]


@settings(max_examples=20, deadline=None)
@given(traces(), st.data())
def test_every_job_runs_and_no_sweep_starves_whatever_is_expected(
    jobs: list[TracedJob], data: st.DataObject
) -> None:
    """However wrong: reserve_after_s, and twice the longest for each sweep before it in line."""
    guesses = data.draw(
        st.dictionaries(
            st.sampled_from([job.job_id for job in jobs]), st.sampled_from([0.01, 5.0, 1000.0])
        )
    )
    started = simulate(jobs, agent_count=AGENT_COUNT, expected_s=guesses)
    assert len(started) == len(jobs)
    longest_s = max(max(job.length_s for job in jobs), *guesses.values(), 0.0)
    sweep_count = len({job.sweep_id for job in jobs})
    # Twice an age that has passed its expectation, twice over, and then the drain for each.
    assert longest_drought_s(started) <= 60.0 + (4 + 1) * sweep_count * longest_s


@settings(max_examples=20, deadline=None)
@given(traces())
def test_no_agent_is_idle_for_long_where_lengths_are_known(jobs: list[TracedJob]) -> None:
    """List scheduling of gangs with reservations is within 3 times the bound, and mostly at it."""
    started = simulate(
        jobs, agent_count=AGENT_COUNT, expected_s={j.job_id: j.length_s for j in jobs}
    )
    assert makespan_s(started) <= 3 * lower_bound_s(jobs, agent_count=AGENT_COUNT)


@given(traces(), st.sets(st.integers(1, 14)))
def test_no_sweep_has_a_second_gang_before_each_was_offered_a_first(
    jobs: list[TracedJob], too_wide: set[int]
) -> None:
    turns = FairShareOrder(waiting(jobs), agent_count=AGENT_COUNT)
    served: set[int] = set()
    left = {job.job_id: job.sweep_id for job in jobs}
    for job in turns:
        del left[job.job_id]
        if job.sweep_id in served:
            assert set(left.values()) <= served, "passed over before all its jobs were"
        if job.job_id not in too_wide:
            turns.started(job)
            served.add(job.sweep_id)
    assert not left


@given(traces())
def test_of_jobs_that_decide_nothing_the_first_repetitions_go_first(jobs: list[TracedJob]) -> None:
    """However long they take: short beside a queue that keeps all agents busy for ever."""
    endless = WaitingJob(
        job_id=1000, sweep_id=99, agent_count=AGENT_COUNT, priority=0, expected_s=1e9
    )
    order = [job for job in FairShareOrder([endless, *waiting(jobs)], agent_count=AGENT_COUNT)]
    for sweep_id in {job.sweep_id for job in jobs}:
        own = [job.job_id for job in order if job.sweep_id == sweep_id]
        assert own == sorted(own)


@settings(max_examples=30, deadline=None)
@given(traces(), st.floats(1.0, 50.0))
def test_a_reserved_agent_is_lent_only_to_those_that_are_done_by_then(
    jobs: list[TracedJob], busy_s: float
) -> None:
    wide = WaitingJob(job_id=1000, sweep_id=9, agent_count=AGENT_COUNT, priority=1, expected_s=10.0)
    agents = farm()
    busy = LiveAgent(
        agent_id="a0", machine_id="m0", cpus=frozenset({0}), is_idle=False, is_occupying=True
    )
    gang = GangAtWork(sweep_id=8, agent_ids=("a0",), age_s=0.0, expected_s=busy_s)
    placements = place(
        [wide, *waiting(jobs)],
        [busy, *agents[1:]],
        reserve_after_s=60.0,
        gangs=[gang],
    )
    lengths_s = {job.job_id: job.length_s for job in jobs}
    assert all(lengths_s[placement.job_id] <= busy_s for placement in placements)


GROUPS = st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(1, 4))


@given(st.lists(GROUPS, max_size=60), st.integers(0, 30))
def test_shares_of_a_round_are_equal_as_far_as_they_are_used(
    queue: list[TurnGroup], most: int
) -> None:
    jobs = list(enumerate(queue))
    chosen = choose_by_turns(jobs, most=most, group_of=lambda job: job[1])
    assert len(chosen) == min(most, len(jobs))
    assert chosen == sorted(chosen)
    there, taken = Counter(queue), Counter(group for _, group in chosen)
    for group, count in taken.items():
        assert [job for job in jobs if job[1] == group][:count] == [
            job for job in chosen if job[1] == group
        ]
    kinds, kinds_taken = (Counter(g[0] for g in some.elements()) for some in (there, taken))
    left = [group for group in there if taken[group] < there[group]]
    for kind, priority, sweep_id in left:
        assert all(kinds_taken[kind] + 1 >= kinds_taken[other] for other in kinds)
        for other_kind, other_priority, other_sweep in there:
            other = other_kind, other_priority, other_sweep
            if other_kind != kind:
                continue
            if other_priority < priority:
                assert taken[other] == 0
            elif other_priority == priority:
                assert taken[kind, priority, sweep_id] + 1 >= taken[other]
