"""What disturbs a measurement: when it is flagged, when it is void, and in which words."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from farm.configuration.spec import ServerPlacement
from farm.measuring.control_run import ControlRun
from farm.measuring.measurement import RankOutcome
from farm.measuring.noise import (
    NoiseKind,
    NoiseLimits,
    NoisePolicy,
    NoiseVerdict,
    RankEvidence,
    control_voids,
    foreign_load_ratio,
    judge_noise,
    ranks_on_a_core,
)
from farm.messages.reports import Sample
from farm.messages.trainer_lines import TrainerResult
from tests.factories import job_spec
from tests.facts import lacking

LIMITS = NoiseLimits()
STEPS_S = tuple(0.1 + 0.0001 * (i % 7) for i in range(100))
QUIET: dict[str, Any] = {
    "machine_cpu_ratio": 0.9,
    "machine_steal_ratio": 0.0,
    "cpu_ratio": 0.9,
    "swap_bytes_per_s": 0.0,
    "throttled_ratio": 0.0,
}


def outcome(*samples: Sample, rank: int = 0, window_s: float = 10.0) -> RankOutcome:
    result = TrainerResult(
        timed_step_count=100,
        window_step_count=100,
        timed_window_s=window_s,
        timed_begun_monotonic_s=0.0,
        interface_rx_bytes=0,
        interface_tx_bytes=0,
        payload_rx_bytes=0,
        payload_tx_bytes=0,
        train_loss=0.5,
        val_accuracy_ratio=None,
        peak_resident_bytes=1,
        seed=0,
    )
    return RankOutcome(rank=rank, result=result, timed_begun_s=2.0, samples=samples)


def evidence(rank: int = 0, *, control: ControlRun | None = None, **changes: Any) -> RankEvidence:
    """A rank whose every second from 2 to 12 was read, all alike."""
    samples = [Sample(tick=tick, **{**QUIET, **changes}) for tick in range(14)]
    return RankEvidence(
        agent_id=f"a{rank + 1}", outcome=outcome(*samples, rank=rank), control=control
    )


def verdict(*ranks: RankEvidence, limits: NoiseLimits = LIMITS) -> NoiseVerdict:
    return judge_noise(ranks, timed_steps_s={0: STEPS_S}, limits=limits)


def kinds(found: NoiseVerdict) -> list[NoiseKind]:
    return [flag.kind for flag in found.flags]


def test_a_quiet_measurement_has_neither_flags_nor_a_reason_to_be_void() -> None:
    found = verdict(evidence(0), evidence(1))
    assert (found.flags, found.voids) == ((), ())


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"machine_steal_ratio": 0.05}, NoiseKind.STEAL, "5 % of its cores was stolen by the hyp"),
        ({"cpu_ratio": 0.7}, NoiseKind.FOREIGN_LOAD, "20 % of its cores was used by other prog"),
        ({"throttled_ratio": 0.05}, NoiseKind.THROTTLED, "5 % of its cores was held back by a C"),
        (
            {"swap_bytes_per_s": 2e6},
            NoiseKind.SWAP,
            "2.00 MB/s went to and from swap (limit 1.00 MB/s)",
        ),
        (
            {"extra": {"thermal_throttles_per_s": 0.5}},
            NoiseKind.THERMAL,
            "slowed down for their heat 0.5 times a second",
        ),
        (
            {"extra": {"gpu0_foreign_process_count": 0.0, "gpu3_foreign_process_count": 2.0}},
            NoiseKind.GPU_PROCESSES,
            "other programs had 2 processes on one of its GPUs",
        ),
        (
            {"extra": {"gpu0_heat_slowdown_ratio": 0.05, "gpu0_hardware_slowdown_ratio": 0.0}},
            NoiseKind.GPU_SLOWDOWN,
            "slowed one of its GPUs in 5 % of the seconds (limit 1 %)",
        ),
        (
            {"extra": {"gpu1_ecc_corrected_errors_per_s": 0.5}},
            NoiseKind.GPU_ECC,
            "the memory of one of its GPUs had 0.5 errors a second",
        ),
    ],
)
def test_beyond_the_lower_limit_a_measurement_is_flagged_and_kept(
    changes: dict[str, Any], kind: NoiseKind, words: str
) -> None:
    found = verdict(evidence(0), evidence(1, **changes))
    [flag] = found.flags
    assert (flag.kind, flag.rank, found.voids) == (kind, 1, ())
    assert flag.message.startswith("agent a2, rank 1: ")
    assert words in flag.message


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"machine_steal_ratio": 0.14}, NoiseKind.STEAL),
        ({"cpu_ratio": 0.5}, NoiseKind.FOREIGN_LOAD),
        ({"throttled_ratio": 0.2}, NoiseKind.THROTTLED),
        ({"swap_bytes_per_s": 30e6}, NoiseKind.SWAP),
        ({"extra": {"gpu0_hardware_slowdown_ratio": 0.2}}, NoiseKind.GPU_SLOWDOWN),
    ],
)
def test_beyond_the_upper_limit_it_is_void(changes: dict[str, Any], kind: NoiseKind) -> None:
    [void] = verdict(evidence(0, **changes)).voids
    assert (void.kind, void.rank) == (kind, 0)


def test_a_gpu_that_trains_at_its_power_cap_is_undisturbed() -> None:
    at_work = {
        **{"gpu0_power_capped_ratio": 1.0, "gpu0_heat_slowdown_ratio": 0.0},
        **{"gpu0_foreign_process_count": 0.0, "gpu0_ecc_uncorrected_errors_per_s": 0.0},
    }
    assert verdict(evidence(0, extra=at_work)).flags == ()


def test_the_reason_names_agent_rank_value_and_limit() -> None:
    [void] = verdict(evidence(0), evidence(1, machine_steal_ratio=0.14)).voids
    assert lacking(void.message, "a2", "rank 1", "14 %", "stolen", "limit 10 %") == []


def test_a_limit_itself_is_not_beyond_it() -> None:
    assert kinds(verdict(evidence(0, machine_steal_ratio=0.02))) == []
    assert verdict(evidence(0, machine_steal_ratio=0.10)).voids == ()


def test_the_worst_reason_comes_first() -> None:
    found = verdict(
        evidence(0, machine_steal_ratio=0.11), evidence(1, swap_bytes_per_s=100e6, cpu_ratio=0.5)
    )
    assert [v.kind for v in found.voids] == [
        NoiseKind.SWAP,
        NoiseKind.FOREIGN_LOAD,
        NoiseKind.STEAL,
    ]


def test_under_the_flagging_policy_nothing_is_void() -> None:
    limits = dataclasses.replace(LIMITS, policy=NoisePolicy.FLAG)
    run = ControlRun(control_s=2.0, past_s=(1.0,) * 5)
    found = verdict(evidence(0, machine_steal_ratio=0.5, control=run), limits=limits)
    assert kinds(found) == [NoiseKind.STEAL, NoiseKind.CONTROL_RUN]
    assert found.voids == ()
    assert control_voids([(0, "a1", run)], limits) == ()


def test_what_was_not_measured_disturbs_nothing() -> None:
    assert verdict(evidence(0, **dict.fromkeys(QUIET))).flags == ()


def test_only_the_timed_window_counts() -> None:
    samples = [
        Sample(tick=tick, **{**QUIET, "machine_steal_ratio": 0.0 if 3 <= tick <= 12 else 1.0})
        for tick in range(20)
    ]
    rank = RankEvidence(agent_id="a1", outcome=outcome(*samples), control=None)
    assert verdict(rank).flags == ()


@pytest.mark.parametrize(
    ("machine", "own", "interrupts", "foreign"),
    [
        (0.9, 0.4, 0.0, 0.5),
        (0.9, 0.4, 0.3, 0.2),  # the trainer's own traffic, above all
        (0.4, 0.5, 0.0, 0.0),  # not read in the same instant
        (None, 0.5, 0.0, None),
        (0.5, None, 0.0, None),
    ],
)
def test_foreign_load_is_what_neither_trainers_nor_interrupts_used(
    machine: float | None, own: float | None, interrupts: float, foreign: float | None
) -> None:
    sample = Sample(
        tick=1,
        machine_cpu_ratio=machine,
        cpu_ratio=own,
        extra={"machine_interrupt_ratio": interrupts},
    )
    assert foreign_load_ratio(sample) == (None if foreign is None else pytest.approx(foreign))


def test_seconds_that_were_not_sampled_are_flagged_but_void_nothing() -> None:
    samples = [Sample(tick=tick, **QUIET) for tick in range(14) if tick not in (5, 6, 7)]
    rank = RankEvidence(agent_id="a1", outcome=outcome(*samples), control=None)
    found = verdict(rank)
    [flag] = found.flags
    assert flag.kind is NoiseKind.HOLES
    assert "30 % of the timed seconds were not sampled" in flag.message
    assert found.voids == ()


def test_a_series_that_is_missing_as_a_whole_is_flagged() -> None:
    rank = RankEvidence(agent_id="a1", outcome=outcome(), control=None)
    assert kinds(verdict(rank)) == [NoiseKind.HOLES]


def test_one_lost_second_or_a_window_without_whole_seconds_is_no_hole() -> None:
    lost = [Sample(tick=tick, **QUIET) for tick in range(14) if tick != 5]
    rank = RankEvidence(agent_id="a1", outcome=outcome(*lost), control=None)
    short = RankEvidence(agent_id="a1", outcome=outcome(window_s=0.5), control=None)
    assert verdict(rank).flags == verdict(short).flags == ()


def test_outliers_are_counted_and_flagged_where_they_are_many() -> None:
    few, many = (*STEPS_S[:95], *(0.3,) * 5), (*STEPS_S[:85], *(0.3,) * 14, 0.7)
    found = judge_noise([evidence()], timed_steps_s={0: few}, limits=LIMITS)
    assert (found.outlier_step_count, found.largest_outlier_s, found.flags) == (5, 0.3, ())
    found = judge_noise([evidence()], timed_steps_s={0: many}, limits=LIMITS)
    assert (found.outlier_step_count, found.largest_outlier_s) == (15, 0.7)
    [flag] = found.flags
    assert (flag.kind, flag.rank, found.voids) == (NoiseKind.OUTLIERS, None, ())
    assert lacking(flag.message, "15 %", "far from the median", "700 ms") == []


def test_the_interval_of_the_median_comes_with_the_verdict() -> None:
    found = verdict(evidence())
    assert found.step_time_low_s is not None
    assert found.step_time_high_s is not None
    assert found.step_time_low_s <= sorted(STEPS_S)[50] <= found.step_time_high_s
    none = judge_noise([evidence()], timed_steps_s={}, limits=LIMITS)
    assert (none.step_time_low_s, none.outlier_step_count, none.flags) == (None, None, ())


PAST = (1.0, 1.02, 0.98, 1.01, 0.99, 1.0)


@pytest.mark.parametrize(("control_s", "flags", "voids"), [(1.09, 0, 0), (1.2, 1, 0), (1.4, 1, 1)])
def test_a_control_run_slower_than_the_agents_own_past_disturbs(
    control_s: float, flags: int, voids: int
) -> None:
    found = verdict(evidence(0), evidence(1, control=ControlRun(control_s=control_s, past_s=PAST)))
    assert (len(found.flags), len(found.voids)) == (flags, voids)
    assert found.control_ratio == pytest.approx(control_s)


def test_the_control_runs_reason_says_against_what_it_was_slow() -> None:
    [void] = control_voids([(1, "a2", ControlRun(control_s=1.5, past_s=PAST))], LIMITS)
    assert (void.kind, void.rank) == (NoiseKind.CONTROL_RUN, 1)
    facts = ("a2", "rank 1", "control run", "50 % longer", "last 6", "limit 30 %")
    assert lacking(void.message, *facts) == []


def test_the_slowest_ranks_ratio_is_the_gangs() -> None:
    slow, quick = (ControlRun(control_s=s, past_s=PAST) for s in (1.05, 0.8))
    found = verdict(evidence(0, control=slow), evidence(1, control=quick), evidence(2))
    assert found.control_ratio == pytest.approx(1.05)


def test_too_short_a_past_proves_nothing() -> None:
    run = ControlRun(control_s=9.0, past_s=(1.0,) * 4)
    found = verdict(evidence(0, control=run))
    assert (found.control_ratio, found.flags, found.voids) == (None, (), ())


def test_a_quicker_control_run_is_no_disturbance() -> None:
    assert verdict(evidence(0, control=ControlRun(control_s=0.5, past_s=PAST))).flags == ()


def test_a_machine_that_changed_for_good_is_void_three_times_then_flagged_then_normal() -> None:
    past, story = (1.0,) * 20, []
    for _ in range(12):
        run = ControlRun(control_s=1.6, past_s=past)
        found = verdict(evidence(0, control=run))
        story.append("void" if found.voids else "flagged" if found.flags else "quiet")
        past = (run.control_s, *past)[:20]
    assert story == ["void"] * 3 + ["flagged"] * 8 + ["quiet"]


def test_ranks_out_of_step_are_each_held_against_their_own_median() -> None:
    paces = {0: [0.1] * 20, 1: [0.3] * 20}
    found = judge_noise([evidence()], timed_steps_s=paces, limits=LIMITS)
    assert (found.outlier_step_count, found.flags) == (0, ())
    jolted = {**paces, 1: [0.3] * 15 + [3.0] * 5}
    found = judge_noise([evidence()], timed_steps_s=jolted, limits=LIMITS)
    assert found.outlier_step_count == 5
    assert [flag.message.partition(":")[0] for flag in found.flags] == ["rank 1"]


def test_a_rank_beside_others_of_its_agent_is_not_taken_for_an_agents_place() -> None:
    paces = {rank: [0.3] * 20 for rank in range(3)} | {3: [0.3] * 15 + [3.0] * 5}
    agents = [evidence(0), evidence(1)]
    found = judge_noise(agents, timed_steps_s=paces, limits=LIMITS, ranks_per_agent=2)
    [flag] = found.flags
    assert flag.message.startswith("agent a2, process of rank 3: 25 % of its timed steps")


def test_two_durations_all_over_a_run_are_how_it_behaves_and_no_disturbance() -> None:
    times_s = [0.2 if (i * 7) % 10 < 4 else 0.1 for i in range(100)]
    found = judge_noise([evidence()], timed_steps_s={0: times_s}, limits=LIMITS)
    assert (found.outlier_step_count, found.flags) == (40, ())


def test_only_several_ranks_of_an_agent_share_its_cores() -> None:
    single = job_spec(world_size=2)
    assert ranks_on_a_core(single, 0, 0.5) is None  # a CPU quota of half a core
    several = job_spec(
        **{"strategy": "ps_sync", "world_size": 4, "axes": {"ranks_per_agent": 2}},
        **{"server_count": 1, "server_placement": ServerPlacement.APART},
    )
    assert ranks_on_a_core(several, 1, 1) == 2.0
    assert ranks_on_a_core(several, 1, None) is None
    assert ranks_on_a_core(several, 2, 1) is None  # it only serves


@pytest.mark.parametrize(
    ("ranks_per_core", "is_flagged"), [(None, False), (1.0, False), (2.0, True)]
)
def test_ranks_that_share_a_core_are_flagged(
    ranks_per_core: float | None, is_flagged: bool
) -> None:
    shared = dataclasses.replace(evidence(), ranks_per_core=ranks_per_core)
    verdict = judge_noise([shared], timed_steps_s={0: STEPS_S}, limits=LIMITS)
    assert [flag.kind for flag in verdict.flags] == [NoiseKind.SHARED_CORES] * is_flagged
    assert verdict.voids == ()
