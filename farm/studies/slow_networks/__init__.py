"""The slow-networks study: benefits and costs of averaging under a delay, and its page."""

from __future__ import annotations

from collections.abc import Sequence

from farm.errors import FarmError
from farm.measuring.measurement import OK
from farm.measuring.study_run import StudyRun
from farm.studies import conditions, tables
from farm.studies.contracts import LabHosts, Page, Study, write_page
from farm.studies.run_groups import RunGroup, run_groups
from farm.studies.text import MISSING, kb, listing, ms, percent, significant, span
from farm.text import display
from farm.text.plurals import counted

_SYNCHRONOUS = "torch_ddp"
_TRAINING = ("model", "dataset", "strategy", "steps_between_averages")
_WORK = ("model", "dataset", "world_size", "global_batch_size", "one_way_delay_s")


def slow_networks_page(runs: Sequence[StudyRun]) -> Page:
    """Make the page.

    Raises:
        FarmError: there is no run with a time.
    """
    groups = slow_network_groups(runs)
    if not groups:
        raise FarmError("the slow-networks study has no measured run to show")
    failed = conditions.failures(runs, lambda run: f"`{run['strategy']}`")
    counts = sorted({len(group.runs) for group in groups})
    texts = conditions.texts(runs, runs, groups) | {
        "trained": listing(list(dict.fromkeys(_trained(group.first) for group in groups))),
        "results": _results_table(groups),
        "failures": f"Without a time: {failed}." if failed else "",
        "repetitions": span([counted(count, "run") for count in counts]).capitalize(),
        "spread": _spread(groups),
    }
    return write_page("slow_networks", texts)


def slow_network_groups(runs: Sequence[StudyRun]) -> list[RunGroup]:
    """Put the successful runs of a training at a delay together; synchronous ones come first."""
    measured = [run for run in runs if run.status == OK and run["step_time_s"]]
    groups = run_groups(measured, (*_TRAINING, "one_way_delay_s"))
    return sorted(
        groups, key=lambda g: (g.first["model"] or "", g.first["strategy"] != _SYNCHRONOUS)
    )


def _results_table(groups: Sequence[RunGroup]) -> str:
    synchronous = {_work(g): g for g in reversed(groups) if g.first["strategy"] == _SYNCHRONOUS}

    def averages(group: RunGroup) -> str:
        is_synchronous = group.first["strategy"] == _SYNCHRONOUS
        return MISSING if is_synchronous else str(group.first["steps_between_averages"])

    def base(group: RunGroup) -> RunGroup | None:
        """Return the synchronous training of the same work at the same delay."""
        return None if group.first["strategy"] == _SYNCHRONOUS else synchronous.get(_work(group))

    def share(group: RunGroup) -> str:
        epoch_s = group.median_of("time_per_epoch_s")
        base_s = of.median_of("time_per_epoch_s") if (of := base(group)) else None
        return percent(epoch_s / base_s) if epoch_s and base_s else MISSING

    def apart(group: RunGroup) -> str:
        accuracy = group.mean_of("accuracy")
        base_accuracy = of.mean_of("accuracy") if (of := base(group)) else None
        if accuracy is None or base_accuracy is None:
            return MISSING
        return f"{100 * (accuracy - base_accuracy):+.1f}"

    return tables.table_of(
        groups,
        [
            tables.MODEL_COLUMN,
            tables.STRATEGY_COLUMN,
            ("k", averages),
            tables.DELAY_COLUMN,
            tables.median("RTT (ms)", "rtt_s", ms),
            tables.median("step (ms)", "step_time_s", ms),
            tables.median("epoch (s)", "time_per_epoch_s", significant),
            ("of `torch_ddp`", share),
            tables.mean("sent (kB)", "sent_bytes_per_step", kb),
            tables.mean("accuracy", "accuracy", lambda a: display.plain(display.percent(a, 1))),
            ("apart", apart),
            tables.mean(
                "loss", "test_loss", lambda loss: MISSING if loss is None else f"{loss:.3f}"
            ),
        ],
    )


def _work(group: RunGroup) -> tuple[object, ...]:
    return tuple(group.first[column] for column in _WORK)


def _trained(run: StudyRun) -> str:
    """Say how long a training was."""
    if run["epochs"]:
        return f"{counted(run['epochs'], 'epoch')} of `{run['model']}`"
    # Of ranks at their own pace the steps of all are counted.
    rank_count = 1 if run["strategy"] == _SYNCHRONOUS else run["world_size"]
    return f"{(run['timed_step_count'] or 0) // rank_count} steps of `{run['model']}`"


def _spread(groups: Sequence[RunGroup]) -> str:
    """Say how far the accuracies of the same training at several delays are apart at most."""
    means: dict[tuple[object, ...], list[float]] = {}
    for group in groups:
        accuracy = group.mean_of("accuracy")
        if accuracy is not None:
            means.setdefault(tuple(group.first[c] for c in _TRAINING), []).append(accuracy)
    apart = [max(found) - min(found) for found in means.values() if len(found) > 1]
    return f"at most {display.points(max(apart))}" if apart else "none was repeated"


SLOW_NETWORKS = Study(
    name="slow_networks",
    summary="PyTorch ranks that exchange in every step, or every 8 or 32, at up to 100 ms",
    place=LabHosts(2),
    page_file="studies/slow_networks.md",
    page=slow_networks_page,
    modules=("torch",),
)
