"""Run trials of predictors on all cores, in processes of their own, with a progress bar."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from typing import TypeVar

from farm.cli.output import row_bar
from farm.processes.subprocess_call import spared_children
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.evaluating.evaluate import FoldTrial, Tried, run_trial
from farm.recommend.evaluating.few_shot import FewShotTrial, run_few_shot

# Fits are of small matrices: threads within one would only fight for the cores.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

_Work = TypeVar("_Work")
_Found = TypeVar("_Found")

# What every trial of this process is about.
_observations: Sequence[Observation] = ()
_failures: Sequence[Configuration] = ()


def run_all(
    observations: Sequence[Observation],
    failures: Sequence[Configuration],
    trials: Sequence[FoldTrial],
    few_shots: Sequence[FewShotTrial],
    *,
    process_count: int | None = None,
) -> tuple[list[Tried], list[tuple[FewShotTrial, Mapping[int, list[float]]]]]:
    """Return what each found, in order."""
    for name, value in _ONE_THREAD.items():
        os.environ.setdefault(name, value)
    with ProcessPoolExecutor(
        max_workers=process_count or len(os.sched_getaffinity(0)),
        mp_context=get_context("spawn"),
        initializer=_begin,
        initargs=(observations, failures),
    ) as pool:
        try:
            found = _in_order(pool, _try, trials, "evaluating")
            shots = _in_order(pool, _try_few, few_shots, "few measurements")
        except BaseException:
            for process in active_children():
                process.kill()
            pool.shutdown(cancel_futures=True)
            raise
    return found, list(zip(few_shots, shots, strict=True))


def _in_order(
    pool: ProcessPoolExecutor,
    run: Callable[[_Work], _Found],
    works: Sequence[_Work],
    title: str,
) -> list[_Found]:
    with spared_children():
        futures = {pool.submit(run, work): index for index, work in enumerate(works)}
    found: dict[int, _Found] = {}
    with row_bar(title, noun="trials") as show:
        for future in as_completed(futures):
            found[futures[future]] = future.result()
            show(len(found), len(works))
    return [found[index] for index in range(len(works))]


def _begin(observations: Sequence[Observation], failures: Sequence[Configuration]) -> None:
    global _observations, _failures
    _observations, _failures = observations, failures


def _try(trial: FoldTrial) -> Tried:
    return run_trial(_observations, trial)


def _try_few(trial: FewShotTrial) -> Mapping[int, list[float]]:
    return run_few_shot(_observations, trial, failures=_failures)
