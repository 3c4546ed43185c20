"""`farm evaluate`: how well predictors do on held-out measurements."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from farm.cli.advice.evaluation_report import (
    CHOICE_COLUMNS,
    DOUBT_COLUMNS,
    FEW_SHOT_COLUMNS,
    INTERVAL_COLUMNS,
    choice_cells,
    doubt_cells,
    few_shot_cells,
    interval_cells,
    write_report,
)
from farm.cli.advice.questions import (
    origin_option,
    requested_script,
    script_options,
    workload_options,
)
from farm.cli.output import json_option, print_json, print_table, row_bar, to_stderr
from farm.cli.ranges import Real
from farm.cli.session import settings, store
from farm.configuration.words import network_words
from farm.errors import InvalidSpec, NotFound
from farm.processes.subprocess_call import spared_children
from farm.recommend.observations import LoadedObservations, load
from farm.store.engine import reading
from farm.text.display import short_fingerprint
from farm.text.plurals import counted

if TYPE_CHECKING:
    from farm.recommend.configuration import Configuration, Observation
    from farm.recommend.evaluating.evaluate import (
        DoubtInWords,
        FoldTrial,
        PredictorEvaluation,
        Tried,
    )
    from farm.recommend.evaluating.few_shot import FewShotTrial

FEW_SHOT_COUNTS = (6, 10, 12, 15, 20, 30)
_SEEDS, _QUICK_SEEDS = 20, 3
# A plan takes seconds where there are more measurements to choose from.
_MOST_FOR_ALL_SEEDS = 150
_LEAST_OBSERVATIONS = 10
# Fits are of small matrices: threads within one would only fight for the cores.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

_Work = TypeVar("_Work")
_Found = TypeVar("_Found")

# What every trial of this process is about.
_observations: Sequence[Observation] = ()
_failures: Sequence[Configuration] = ()


@click.command()
@origin_option
@workload_options
@script_options
@click.option("--fingerprint", help="Which kind of hardware, by its first characters.")
@click.option("--predictor", "predictors", multiple=True, help="Only this; may be repeated.")
@click.option("--split", "splits", multiple=True, help="Only this; may be repeated.")
@click.option("--machine-price", type=Real(min=0), help="Price of a machine in that formula.")
@click.option("--seed", default=0, show_default=True, help="Seed of the random folds.")
@click.option("--quick", is_flag=True, help="The default predictor alone, with fewer seeds.")
@click.option("--few-shot/--no-few-shot", default=True, help="After 6 to 30 measurements, too.")
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Number of processes; all cores by default."
)
@click.option(
    "--report", type=click.Path(file_okay=False, path_type=Path), help="Write Markdown there."
)
@json_option
def evaluate(
    *,
    origin: str,
    model: str | None,
    dataset: str | None,
    fingerprint: str | None,
    predictors: tuple[str, ...],
    splits: tuple[str, ...],
    machine_price: float | None,
    seed: int,
    quick: bool,
    few_shot: bool,
    jobs: int | None,
    report: Path | None,
    as_json: bool,
    **script: Any,
) -> None:
    """Hold out measurements, predict them, and report the errors.

    A choice takes the configuration that is predicted to be fastest. Its regret is how much longer
    it really takes than the best one. Configurations that were not held out have their measured
    time in a choice, except in the regrets called unseen. If the per-replica batch size is
    constant, choices compare the time per example x (1 + machines x --machine-price), which is 1/16
    by default. Intervals are calibrated without the held-out measurements. Their width is high /
    low - 1, and their score is the interval score of ln(time), shown beside that of intervals of
    constant width: less is better.
    """
    loaded = _load(script, origin=origin, model=model, dataset=dataset, fingerprint=fingerprint)
    is_long = len(loaded.observations) > _MOST_FOR_ALL_SEEDS
    seed_count = _QUICK_SEEDS if quick or is_long else _SEEDS
    evaluation = _evaluate(
        loaded,
        origin=origin,
        predictors=_predictors(predictors, quick=quick),
        split_names=splits,
        machine_price=machine_price,
        seed=seed,
        seed_count=seed_count if few_shot else 0,
        process_count=jobs,
    )
    if report is not None:
        for path in write_report(evaluation, report):
            click.echo(f"written: {path}", err=True)
    if as_json:
        print_json(dataclasses.replace(evaluation, outcomes=()))
    else:
        _print(evaluation)


def _load(
    script: Mapping[str, Any],
    *,
    origin: str,
    model: str | None,
    dataset: str | None,
    fingerprint: str | None,
) -> LoadedObservations:
    with store(settings()) as engine, reading(engine) as session:
        measured = requested_script(session, origin=origin, **script)
        if measured is not None:
            model, dataset = measured.model, measured.dataset
        found = load(session, origin=origin, model=model, dataset=dataset)
    kinds = [k for k in found.values() if (k.fingerprint or "").startswith(fingerprint or "")]
    if not kinds:
        raise NotFound(f"origin '{origin}': the store has no such measurement of it")
    if len(kinds) > 1:
        others = ", ".join(short_fingerprint(k.fingerprint or "none") for k in kinds[1:])
        to_stderr(f"several kinds of hardware; --fingerprint evaluates {others}")
    loaded = kinds[0]
    workloads = {(o.configuration.model, o.configuration.dataset) for o in loaded.observations}
    if len(workloads) > 1:
        known = ", ".join(sorted(f"{m} on {d}" for m, d in workloads))
        raise InvalidSpec("model", model, f"--model and --dataset for one of {known}")
    if len(loaded.observations) < _LEAST_OBSERVATIONS:
        known = counted(len(loaded.observations), "measurement is", "measurements are")
        raise NotFound(
            f"origin '{origin}': {known} too few to hold any out; {_LEAST_OBSERVATIONS} are needed"
        )
    return loaded


def _predictors(names: Sequence[str], *, quick: bool) -> list[str]:
    from farm.recommend.predictors import DEFAULT_PREDICTOR, PREDICTORS

    for name in names:
        if name not in PREDICTORS:
            raise InvalidSpec("--predictor", name, f"one of {', '.join(PREDICTORS)}")
    if names:
        return list(names)
    others = [] if quick else [name for name in PREDICTORS if name != DEFAULT_PREDICTOR]
    return [DEFAULT_PREDICTOR, *others]


def _evaluate(
    loaded: LoadedObservations,
    *,
    origin: str,
    predictors: Sequence[str],
    split_names: Sequence[str],
    machine_price: float | None,
    seed: int,
    seed_count: int,
    process_count: int | None,
) -> PredictorEvaluation:
    from farm.recommend.calibrated.novelty import Space
    from farm.recommend.calibrated.splits import all_splits
    from farm.recommend.evaluating.evaluate import PredictorEvaluation, summarise, trials
    from farm.recommend.evaluating.few_shot import summarise_few_shot
    from farm.recommend.evaluating.questions import default_machine_price

    observations = loaded.observations
    splits = all_splits(observations, seed=seed)
    for name in split_names:
        if name not in {split.name for split in splits}:
            known = ", ".join(repr(split.name) for split in splits)
            raise InvalidSpec("--split", name, f"one of {known}")
    splits = [split for split in splits if not split_names or split.name in split_names]
    price = default_machine_price(observations) if machine_price is None else machine_price
    failures = [failure.configuration for failure in loaded.failures]
    tried, shots = _run_all(
        observations,
        failures,
        trials(predictors, splits),
        _few_shots(predictors[0], len(observations), seed_count=seed_count, price=price),
        process_count=process_count,
    )
    first = observations[0].configuration
    return PredictorEvaluation(
        origin=origin,
        model=first.model,
        dataset=first.dataset,
        fingerprint=loaded.fingerprint,
        observation_count=len(observations),
        failure_count=len(failures),
        machine_price=price,
        is_weak=Space.of(o.configuration for o in observations).is_weak,
        seed=seed,
        predictors=tuple(predictors),
        splits=tuple(summarise(observations, splits, tried, machine_price=price)),
        few_shots=tuple(summarise_few_shot(shots)),
        suspicious=tuple(_doubts(observations, predictors[0])),
        outcomes=tuple(
            outcome
            for t in tried
            if t.trial.predictor_name == predictors[0] and t.trial.fold in splits[0].folds
            for outcome in t.outcomes
        ),
    )


def _run_all(
    observations: Sequence[Observation],
    failures: Sequence[Configuration],
    trials: Sequence[FoldTrial],
    few_shots: Sequence[FewShotTrial],
    *,
    process_count: int | None = None,
) -> tuple[list[Tried], list[tuple[FewShotTrial, Mapping[int, list[float]]]]]:
    """Run trials on all cores, in processes of their own; return what each found, in order."""
    for name, value in _ONE_THREAD.items():
        os.environ.setdefault(name, value)
    with ProcessPoolExecutor(
        max_workers=process_count or len(os.sched_getaffinity(0)),
        mp_context=get_context("spawn"),
        initializer=_begin_process,
        initargs=(observations, failures),
    ) as pool:
        try:
            found = _in_order(pool, _run_fold, trials, "evaluating")
            shots = _in_order(pool, _run_few_shots, few_shots, "few measurements")
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


def _begin_process(observations: Sequence[Observation], failures: Sequence[Configuration]) -> None:
    global _observations, _failures
    _observations, _failures = observations, failures
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent has ended, however; the pool would wait for work forever."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run_fold(trial: FoldTrial) -> Tried:
    from farm.recommend.evaluating.evaluate import run_trial

    return run_trial(_observations, trial)


def _run_few_shots(trial: FewShotTrial) -> Mapping[int, list[float]]:
    from farm.recommend.evaluating.few_shot import run_few_shot

    return run_few_shot(_observations, trial, failures=_failures)


def _few_shots(
    predictor: str, observation_count: int, *, seed_count: int, price: float
) -> list[FewShotTrial]:
    from farm.recommend.evaluating.few_shot import FewShotTrial

    counts = tuple(count for count in FEW_SHOT_COUNTS if count < observation_count)
    return [
        FewShotTrial(
            predictor_name=predictor,
            counts=counts,
            is_planned=is_planned,
            seed=seed,
            machine_price=price,
        )
        for is_planned in (True, False)
        for seed in range(seed_count)
        if counts
    ]


def _doubts(observations: Sequence[Observation], predictor: str) -> list[DoubtInWords]:
    from farm.recommend.calibrated.step_time_model import fit_step_time_model
    from farm.recommend.evaluating.evaluate import DoubtInWords
    from farm.recommend.predictors import PREDICTORS

    by_id = {o.measurement_id: o for o in observations}
    model = fit_step_time_model(observations, predictor=PREDICTORS[predictor], requested=())
    return [
        DoubtInWords(
            configuration=_words(by_id[suspicion.measurement_id].configuration),
            step_time_s=by_id[suspicion.measurement_id].step_time_s,
            suspicion=suspicion,
        )
        for suspicion in model.suspicions
    ]


def _words(c: Configuration) -> str:
    named = [c.training_pass.value, c.framework, c.strategy, c.setup.text, c.network]
    network = "" if c.is_untouched else f", {network_words(c.by_field)}"
    names = " ".join(name.replace("_", " ") for name in named if name)
    return f"{names}: world size {c.world_size}, batch {c.global_batch_size}{network}"


def _print(evaluation: PredictorEvaluation) -> None:
    print_table(CHOICE_COLUMNS, [choice_cells(s) for s in evaluation.splits])
    click.echo()
    print_table(INTERVAL_COLUMNS, [interval_cells(s) for s in evaluation.splits])
    if evaluation.few_shots:
        click.echo()
        print_table(FEW_SHOT_COLUMNS, [few_shot_cells(s) for s in evaluation.few_shots])
    click.echo()
    if not evaluation.suspicious:
        click.echo("Suspicious measurements: none")
        return
    title = "Suspicious measurements, which count less and are not left out:"
    print_table(DOUBT_COLUMNS, [doubt_cells(d) for d in evaluation.suspicious], title=title)
