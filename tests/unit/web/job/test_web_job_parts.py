"""What stands on a job's page beside its charts: ranks, network, shares, story, comparison."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from farm.charts.figure_table import figure_table
from farm.charts.histogram import histogram
from farm.charts.job.reading import timed_window
from farm.configuration.axes import AXES
from farm.configuration.spec import NetworkProfile
from farm.errors import InvalidSpec
from farm.gang.lifecycle import AttemptState, JobState, RankPhase
from farm.measuring.noise import UNDISTURBED, Disturbance, NoiseKind
from farm.store.measurements.neighbours import Neighbour
from farm.store.sweeps.jobs import JobHistory
from farm.store.tables import AttemptRow, JobEvent, JobRow, RankRow
from tests.factories import NOW, job_spec, seconds
from web.drawing.rendered import histogram_to_plotly
from web.job.network import NetworkVerdict, network_of
from web.job.page_data import compare_with_neighbours
from web.job.ranks import RankCard, card, chosen_ranks, written
from web.job.step_profile import step_shares
from web.pages.job import chapters_of

DELAYED = NetworkProfile(one_way_delay_s=0.02)


def _rank(rank: int, **reports: Any) -> RankRow:
    return RankRow(attempt_id=1, rank=rank, agent_id=f"a{rank}", phase=RankPhase.STARTED, **reports)


def _rtts(*pairs: tuple[int, float]) -> list[dict[str, object]]:
    return [{"rank": rank, "rtt_s": rtt_s, "probe_count": 20} for rank, rtt_s in pairs]


def _cards(count: int, *, failed: int | None = None) -> list[RankCard]:
    failure = {"failure": {"kind": "killed", "message": "no"}, "log_tail": ""}
    return [card(_rank(n, ended=failure if n == failed else None)) for n in range(count)]


# --- ranks ---


def test_a_wide_gang_shows_its_first_ranks_and_the_one_that_failed() -> None:
    assert chosen_ranks(None, _cards(3), span_s=60.0)[0] == (0, 1, 2)
    assert chosen_ranks(None, _cards(64), span_s=60.0)[0] == (0, 1, 2, 3, 4, 5)
    assert chosen_ranks(None, _cards(64, failed=40), span_s=60.0)[0] == (0, 1, 2, 3, 4, 40)


def test_a_day_has_room_for_fewer_ranks_and_a_week_for_one() -> None:
    assert chosen_ranks(None, _cards(8), span_s=86_400.0) == ((0, 1), 4)
    assert chosen_ranks(None, _cards(8), span_s=604_800.0) == ((0,), 1)
    with pytest.raises(InvalidSpec, match="at most 4 ranks at once of 24 h; of less time"):
        chosen_ranks("0-4", _cards(8), span_s=86_400.0)


def test_ranks_are_named_by_numbers_and_stretches() -> None:
    assert chosen_ranks("0-2, 5,7", _cards(8), span_s=60.0)[0] == (0, 1, 2, 5, 7)
    assert written((0, 1, 2, 5, 7, 8)) == "0-2,5,7-8"
    assert written(()) == ""


@pytest.mark.parametrize("text", ["8", "x", "1-", "3-1", "0,0", ",", "0-9999", "-1", "1.5", "²"])
def test_ranks_that_are_not_there_are_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match="ranks from 0 to 7 with commas"):
        chosen_ranks(text, _cards(8), span_s=60.0)


def test_more_than_a_dozen_ranks_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="at most 12 ranks at once, got"):
        chosen_ranks("0-12", _cards(64), span_s=60.0)


def test_the_timed_window_is_what_the_chief_said() -> None:
    ended = {"result": {"timed_window_s": 2.5}, "timed_begun_s": 1.0, "log_tail": ""}
    assert timed_window(_rank(0, ended=ended)) == (1.0, 3.5)
    assert timed_window(_rank(0)) is None
    assert timed_window(None) is None


# --- network ---


def test_a_network_as_asked_is_told_from_one_that_is_not() -> None:
    def gang(second_s: float) -> list[RankRow]:
        return [
            _rank(
                0,
                peers={"rtts": _rtts((1, 0.001))},
                shaped={"emulator": "tc_netem", "rtts": _rtts((1, 0.041)), "bandwidths": []},
            ),
            _rank(
                1,
                peers={"rtts": _rtts((0, 0.001))},
                shaped={"emulator": "tc_netem", "rtts": _rtts((0, second_s)), "bandwidths": []},
            ),
        ]

    right, wrong = network_of(gang(0.041), DELAYED), network_of(gang(0.021), DELAYED)
    assert right is not None
    assert wrong is not None
    assert (right.verdict, right.remarks) == (NetworkVerdict.AS_REQUESTED, ())
    assert wrong.verdict is NetworkVerdict.NOT_AS_REQUESTED
    assert "from rank 1 on a1 to rank 0 takes 21.0 ms, expected 41.0 ms" in wrong.remarks[0]
    # The wrong way comes first.
    first = wrong.pairs[0]
    assert (first.rank, first.peer, first.is_right) == (1, 0, False)
    assert first.expected_s == pytest.approx(0.041)
    assert wrong.shaped is not None
    assert (wrong.shaped.rank, wrong.shaped.shaped_s) == (0, 0.041)


def test_what_is_left_over_after_the_end_is_said() -> None:
    ranks = [
        _rank(
            own,
            peers={"rtts": _rtts((1 - own, 0.001))},
            shaped={"emulator": "tc_netem", "rtts": _rtts((1 - own, 0.041)), "bandwidths": []},
            ended={"rtts": _rtts((1 - own, 0.041 if own else 0.001)), "log_tail": ""},
        )
        for own in (0, 1)
    ]
    found = network_of(ranks, DELAYED)
    assert found is not None
    assert found.verdict is NetworkVerdict.AS_REQUESTED
    assert "still takes 41.0 ms after the end" in found.remarks[0]
    assert [pair.is_undone for pair in found.pairs] == [False, True]


def test_a_narrow_way_is_found_and_an_untouched_network_is_not_judged() -> None:
    limit = NetworkProfile(bandwidth_bytes_per_s=1e6)
    ranks = [
        _rank(
            own,
            peers={"rtts": _rtts((1 - own, 0.001))},
            shaped={
                "emulator": "tc_netem",
                "rtts": _rtts((1 - own, 0.001)),
                "bandwidths": [{"rank": 1 - own, "bytes_per_s": speed, "byte_count": 9}],
            },
        )
        for own, speed in ((0, 1e6), (1, 0.5e6))
    ]
    found = network_of(ranks, limit)
    assert found is not None
    assert found.verdict is NetworkVerdict.NOT_AS_REQUESTED
    assert found.narrowest is not None
    assert (found.narrowest.rank, found.narrowest.bytes_per_s) == (1, 0.5e6)
    untouched = network_of(ranks, None)
    assert untouched is not None
    assert untouched.verdict is NetworkVerdict.UNTOUCHED
    assert {pair.is_right for pair in untouched.pairs} == {None}


def test_a_network_that_nobody_measured_yet_is_not_judged() -> None:
    found = network_of([_rank(0), _rank(1)], DELAYED)
    assert found is not None
    assert (found.verdict, found.before, found.shaped) == (NetworkVerdict.UNKNOWN, None, None)
    assert network_of([_rank(0)], DELAYED) is None


def test_of_a_wide_gang_the_ways_furthest_off_are_listed() -> None:
    size = 64
    ranks = [
        _rank(
            own,
            peers={"rtts": _rtts(*((n, 0.001) for n in range(size) if n != own))},
            shaped={
                "emulator": "tc_netem",
                "rtts": _rtts(
                    *(
                        (n, 0.0415 if (own, n) == (9, 33) else 0.041)
                        for n in range(size)
                        if n != own
                    )
                ),
            },
        )
        for own in range(size)
    ]
    found = network_of(ranks, DELAYED)
    assert found is not None
    assert (len(found.pairs), found.pair_count) == (12, size * (size - 1))
    assert (found.pairs[0].rank, found.pairs[0].peer) == (9, 33)


# --- shares ---


def test_what_is_neither_compute_nor_communication_is_idle() -> None:
    found = step_shares("all", step_s=1.0, compute_s=0.5, communication_s=0.25)
    assert found is not None
    assert {part.name: part.seconds for part in found.parts} == {
        "compute": 0.5,
        "communication": 0.25,
        "idle": 0.25,
    }
    over = step_shares("all", step_s=1.0, compute_s=0.75, communication_s=0.75)
    assert over is not None
    assert [part.ratio for part in over.parts] == [0.5, 0.5, 0.0]
    assert step_shares("all", step_s=None, compute_s=0.5, communication_s=0.5) is None
    assert step_shares("all", step_s=1.0, compute_s=None, communication_s=0.5) is None


# --- story ---


def _story(*events: tuple[float, str, int | None], is_cut: bool = False) -> JobHistory:
    job = JobRow(id=7, state=JobState.RUNNING, created_at=NOW)
    lost = AttemptRow(
        id=3,
        number=1,
        job_id=7,
        state=AttemptState.LOST,
        leased_at=NOW + seconds(1),
        ended_at=NOW + seconds(9),
        failure_kind="killed",
        reason="a signal",
    )
    runs = AttemptRow(
        id=4, number=2, job_id=7, state=AttemptState.RUNNING, leased_at=NOW + seconds(20)
    )
    return JobHistory(
        job=job,
        sweep_name="a sweep",
        attempts=[lost, runs],
        events=[
            JobEvent(job_id=7, at=NOW + seconds(at), event=event, attempt_id=token, reason=None)
            for at, event, token in events
        ],
        measurement=None,
        is_cut=is_cut,
    )


def test_a_story_folds_each_attempt_between_what_happened_to_the_job() -> None:
    chapters = chapters_of(
        _story(
            (1, "job: leased", 3),
            (4, "attempt: measuring", 3),
            (9, "attempt: lost", 3),
            (9, "job: waiting", 3),
            (20, "job: leased", 4),
            (21, "job: cancel requested", 4),
        )
    )
    shape = [c.entry.event if c.entry else c.attempt and c.attempt.attempt.number for c in chapters]
    assert shape == ["job: submitted", 1, "job: waiting", 2]
    lost, runs = chapters[1].attempt, chapters[3].attempt
    assert lost is not None
    assert runs is not None
    assert [entry.event for entry in lost.entries] == [
        "job: leased",
        "attempt: measuring",
        "attempt: lost",
    ]
    assert [entry.after_s for entry in lost.entries] == [None, 3.0, 5.0]
    assert (lost.lasted_s, lost.is_open, runs.lasted_s, runs.is_open) == (8.0, False, None, True)
    assert lost.entries[2].tone == "bad"


def test_what_happened_while_nobody_worked_on_it_is_of_the_job() -> None:
    chapters = chapters_of(
        _story((0, "job: waiting", None), (30, "job: cancelled", None), (31, "something new", None))
    )
    # Attempts without events are told all the same.
    assert [c.entry.event for c in chapters if c.entry] == [
        "job: submitted",
        "job: cancelled",
        "something new",
    ]
    assert sum(c.attempt is not None for c in chapters) == 2


def test_a_story_that_is_cut_does_not_begin_with_its_submission() -> None:
    chapters = chapters_of(_story((30, "job: waiting", None), is_cut=True))
    assert chapters[0].entry is not None
    assert chapters[0].entry.event == "job: waiting"


# --- comparison ---


DISTURBED = Disturbance(weight=0.5, kinds=(NoiseKind.STEAL,))


def _neighbour(job_id: int, **changes: Any) -> Neighbour:
    fields: dict[str, Any] = {
        "job_id": job_id,
        "strategy": "mwms_ring",
        "world_size": 2,
        "server_count": 0,
        "global_batch_size": 64,
        "one_way_delay_s": 0.02,
        "jitter_s": 0.0,
        "packet_loss_ratio": 0.0,
        "bandwidth_bytes_per_s": None,
        "network": "tc_netem",
        "fingerprint": "a kind",
        "step_time_s": 0.1,
        "throughput_examples_per_s": 640.0,
        "disturbance": UNDISTURBED,
    }
    fields |= changes
    values = {axis.field: fields.pop(axis.field, axis.value_in({})) for axis in AXES}
    return Neighbour(values=values, **fields)


def test_repetitions_of_a_neighbour_are_one_line_with_its_ratio() -> None:
    spec = job_spec(world_size=2, global_batch_size=64, network=DELAYED)
    rows = [
        _neighbour(9, world_size=3, step_time_s=0.2),
        _neighbour(8, world_size=3, step_time_s=9.0, disturbance=DISTURBED),
        _neighbour(2, world_size=3, step_time_s=0.4),
        _neighbour(7, world_size=3, step_time_s=0.3),
        _neighbour(6, world_size=3, step_time_s=9.0, fingerprint="another kind"),
        _neighbour(5, world_size=1, strategy="single", network="none", one_way_delay_s=0.0),
        _neighbour(3, world_size=4, disturbance=DISTURBED),
        _neighbour(4, one_way_delay_s=0.0, network="none"),
    ]
    found = compare_with_neighbours(spec, rows, step_time_s=0.1, throughput_examples_per_s=320.0)
    shown = [(one.axis, one.value, one.job_id, one.repetition_count) for one in found]
    assert shown == [
        ("world size", "1 machine, single", 5, 1),
        ("world size", "3 machines", 9, 3),
        ("world size", "3 machines", 6, 1),
        ("world size", "4 machines", 3, 1),
        ("delay", "0 s one way", 4, 1),
    ]
    assert found[1].step_time_s == 0.3
    assert found[1].step_ratio == pytest.approx(3.0)
    assert found[1].throughput_ratio == pytest.approx(2.0)
    assert [one.is_disturbed for one in found] == [False, False, False, True, False]
    unknown = compare_with_neighbours(spec, rows, step_time_s=None, throughput_examples_per_s=None)
    assert {(one.step_ratio, one.throughput_ratio) for one in unknown} == {(None, None)}


def test_neighbours_that_are_set_up_in_another_way_say_how() -> None:
    spec = job_spec(strategy="ps_async", world_size=2, global_batch_size=64, server_count=1)
    served = {
        **{"strategy": "ps_async", "server_count": 1, "server_placement": "collocated"},
        "one_way_delay_s": 0.0,
    }
    rows = [
        _neighbour(1, **{**served, "server_count": 2}),
        _neighbour(2, **{**served, "server_placement": "apart"}),
        _neighbour(3, **served, placement="hard"),
        _neighbour(4, **served, interface="infiniband"),
        _neighbour(5, **{**served, "strategy": "ps_sync"}),
        _neighbour(6, one_way_delay_s=0.0),
        _neighbour(7, **served, training_pass="forward"),
    ]
    found = compare_with_neighbours(spec, rows, step_time_s=0.1, throughput_examples_per_s=None)
    assert [(one.axis, one.value) for one in found] == [
        ("pass", "forward"),
        ("strategy", "mwms_ring"),
        ("strategy", "ps_sync, 1 server collocated"),
        ("servers", "2 servers"),
        ("servers are", "apart"),
        ("placement", "hard"),
        ("network", "infiniband"),
    ]


def test_a_neighbour_without_a_limit_comes_after_those_with_one() -> None:
    profile = NetworkProfile(one_way_delay_s=0.02, bandwidth_bytes_per_s=2e6)
    spec = job_spec(world_size=2, global_batch_size=64, network=profile)
    rows = [_neighbour(2), _neighbour(1, bandwidth_bytes_per_s=1.25e6)]
    found = compare_with_neighbours(spec, rows, step_time_s=None, throughput_examples_per_s=None)
    assert [one.value for one in found] == ["10.0 Mbit/s", "unlimited"]


# --- histogram ---


def test_a_histogram_counts_every_time_once() -> None:
    times_s = [0.1 + n / 1000 for n in range(100)] + [9.0]
    found = histogram(times_s, far=[100], title="Steps")
    assert found is not None
    assert sum(one.count for one in found.bins) == 101
    assert [one.is_far for one in found.bins].count(True) == 1
    assert found.bins[-1].count == 1
    assert "1 of 101 steps far from it" in found.summary
    data = histogram_to_plotly(found)["data"]
    assert isinstance(data, list)
    assert [len(trace["x"]) for trace in data] == [len(found.bins) - 1, 1]
    assert len(figure_table(found).rows) == len(found.bins)


def test_equal_times_are_one_bin_and_one_time_is_none() -> None:
    found = histogram([0.5, 0.5, 0.5], far=[], title="Steps")
    assert found is not None
    assert [one.count for one in found.bins] == [3]
    assert histogram([0.5], far=[], title="Steps") is None


def test_a_clock_behind_says_nothing_of_the_time_between() -> None:
    story = _story((5, "job: leased", 4), (4, "job: cancel requested", 4))
    [runs] = [c.attempt for c in chapters_of(story) if c.attempt and c.attempt.attempt.number == 2]
    assert [entry.after_s for entry in runs.entries] == [None, None]
    assert runs.entries[0].at == NOW + dt.timedelta(seconds=5)
