"""The slow-networks study: what averaging saves under a delay, and costs, and its page."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from string import Template

from farm.errors import FarmError
from farm.measuring.measurement import OK
from farm.measuring.study_run import StudyRun
from farm.studies import conditions
from farm.studies.contracts import LabHosts, Page, Study
from farm.studies.run_groups import RunGroup, run_groups
from farm.studies.text import MISSING, delay_ms, kb, listing, ms, percent, significant, span, table
from farm.text.nouns import counted

_SYNCHRONOUS = "torch_ddp"
_TRAINING = ("model", "dataset", "strategy", "steps_between_averages")
_TITLES = ("k", "delay (ms)", "RTT (ms)", "step (ms)", "epoch (s)", "of `torch_ddp`", "sent (kB)")


def slow_networks_page(runs: Sequence[StudyRun]) -> Page:
    """Make the page.

    Raises:
        FarmError: there is no run with a time.
    """
    groups = slow_network_groups(runs)
    if not groups:
        raise FarmError("the slow-networks study has no measured run to show")
    template = Template(files("farm.studies.slow_networks").joinpath("page.md").read_text())
    counts = sorted({len(group.runs) for group in groups})
    text = template.substitute(
        delays=listing([delay_ms(delay) for delay in sorted({r.one_way_delay_s for r in runs})]),
        trained=listing(list(dict.fromkeys(_trained(group.first) for group in groups))),
        results=table(
            ["model", "strategy", *_TITLES, "accuracy", "apart", "loss"],
            [_row(group, _synchronous(group, groups)) for group in groups],
        ),
        failures=_failures(runs),
        disturbed=conditions.disturbed(runs),
        repetitions=span([counted(count, "run", "runs") for count in counts]).capitalize(),
        spread=_spread(groups),
        machine=conditions.machine(runs),
        round_trips=conditions.round_trips(runs),
    )
    return Page(text=text, drawings=())


def slow_network_groups(runs: Sequence[StudyRun]) -> list[RunGroup]:
    """Put the successful runs of a training at a delay together; synchronous ones come first."""
    measured = [run for run in runs if run.status == OK and run.step_time_s]
    groups = run_groups(measured, (*_TRAINING, "one_way_delay_s"))
    return sorted(groups, key=lambda g: (g.first.model or "", g.first.strategy != _SYNCHRONOUS))


def _synchronous(group: RunGroup, among: Sequence[RunGroup]) -> RunGroup | None:
    """Return the synchronous training of the same work at the same delay."""
    work = ("model", "dataset", "world_size", "global_batch_size", "one_way_delay_s")
    for other in among:
        is_same_work = all(getattr(group.first, c) == getattr(other.first, c) for c in work)
        if other.first.strategy == _SYNCHRONOUS and is_same_work:
            return other
    return None


def _row(group: RunGroup, synchronous: RunGroup | None) -> list[str]:
    first, epoch_s = group.first, group.median_of("time_per_epoch_s")
    base_s = None if synchronous is None else synchronous.median_of("time_per_epoch_s")
    is_synchronous = first.strategy == _SYNCHRONOUS
    is_alone = synchronous is None or is_synchronous
    accuracy, loss = group.mean_of("accuracy"), group.mean_of("test_loss")
    base = None if synchronous is None else synchronous.mean_of("accuracy")
    return [
        f"`{first.model}`",
        f"`{first.strategy}`",
        MISSING if is_synchronous else str(first.steps_between_averages),
        delay_ms(first.one_way_delay_s),
        ms(group.median_of("rtt_s")),
        ms(group.median_of("step_time_s")),
        significant(epoch_s),
        MISSING if is_alone or not epoch_s or not base_s else percent(epoch_s / base_s),
        kb(group.mean_of("sent_bytes_per_step")),
        MISSING if accuracy is None else f"{100 * accuracy:.1f} %",
        MISSING
        if is_alone or accuracy is None or base is None
        else f"{100 * (accuracy - base):+.1f}",
        MISSING if loss is None else f"{loss:.3f}",
    ]


def _trained(run: StudyRun) -> str:
    """Say how long a training was."""
    if run.epochs:
        return f"{counted(run.epochs, 'epoch', 'epochs')} of `{run.model}`"
    # Of ranks at their own pace the steps of all are counted.
    rank_count = 1 if run.strategy == _SYNCHRONOUS else run.world_size
    return f"{(run.timed_step_count or 0) // rank_count} steps of `{run.model}`"


def _spread(groups: Sequence[RunGroup]) -> str:
    """Say how far the accuracies of the same training at several delays are apart at most."""
    means: dict[tuple[object, ...], list[float]] = {}
    for group in groups:
        accuracy = group.mean_of("accuracy")
        if accuracy is not None:
            means.setdefault(tuple(getattr(group.first, c) for c in _TRAINING), []).append(accuracy)
    apart = [max(found) - min(found) for found in means.values() if len(found) > 1]
    return f"at most {100 * max(apart):.1f} points" if apart else "none was repeated"


def _failures(runs: Sequence[StudyRun]) -> str:
    failed = sorted({f"`{run.strategy}`: {run.status}" for run in runs if run.status != OK})
    return f"Without a time: {listing(failed)}." if failed else ""


SLOW_NETWORKS = Study(
    name="slow_networks",
    summary="PyTorch ranks that exchange in every step, or every 8 or 32, at up to 100 ms",
    place=LabHosts(2),
    page_file="studies/slow_networks.md",
    page=slow_networks_page,
    modules=("torch",),
)
