"""What follows from a sweep's measurements: one answer for each workload, batch size and network.

Kept until the store has other measurements, since pages ask again every two seconds and each
answer reads every measurement of its workload. Only what was measured is compared: a page that
follows a sweep must not fit predictions with every result, on what may be the machine it measures.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from farm.core.measurement import OK
from farm.core.scaling import Baselines, baselines
from farm.core.spec import TrainingPass
from farm.recommend.contracts import Objective, Option, Question, Recommendation
from farm.recommend.service import recommend
from farm.store.dashboard import measurement_stamp
from farm.store.measurements import Filter, list_measurements
from farm.store.result_tables import MeasurementRow

MAX_ANSWERS = 8
_MOST_MEASUREMENTS = 20_000
_SWEEPS_KEPT = 32


@dataclass(frozen=True, slots=True)
class Advice:
    """`runner_up`: the best option with another number of machines; None: there is none."""

    question: Question
    answer: Recommendation
    runner_up: Option | None

    @property
    def times_faster(self) -> float | None:
        """How many times as long the runner-up takes."""
        best = self.answer.recommended
        if best is None or self.runner_up is None:
            return None
        time_s, other_s = best.time_per_epoch_s, self.runner_up.time_per_epoch_s
        if time_s is None or other_s is None:
            time_s, other_s = best.step_time_s, self.runner_up.step_time_s
        return other_s / time_s if time_s and other_s else None


@dataclass(frozen=True, slots=True)
class Findings:
    """`single`: how fast one machine was, for the efficiency of gangs."""

    advice: Sequence[Advice]
    single: Baselines


class FindingsCache:
    """The findings of the sweeps that were looked at last. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, tuple[Hashable, Findings]] = OrderedDict()

    def of_sweep(self, session: Session, sweep_id: int) -> Findings:
        """Return what follows from the measurements that the session sees."""
        stamp = measurement_stamp(session)
        with self._lock:
            known = self._kept.get(sweep_id)
        if known is not None and known[0] == stamp:
            return known[1]
        rows = list_measurements(session, Filter(sweep_id=sweep_id), limit=_MOST_MEASUREMENTS)
        findings = Findings(advise(session, rows), baselines(rows))
        with self._lock:
            self._kept[sweep_id] = (stamp, findings)
            self._kept.move_to_end(sweep_id)
            while len(self._kept) > _SWEEPS_KEPT:
                self._kept.popitem(last=False)
        return findings


def advise(session: Session, measurements: Sequence[MeasurementRow]) -> list[Advice]:
    """Answer for the conditions of the sweep's measurements, at most `MAX_ANSWERS` of them.

    The answers rest on everything that the farm has measured, other sweeps included.
    """
    advice = []
    for question in _questions(measurements)[:MAX_ANSWERS]:
        answer = recommend(session, question=question, objective=Objective())
        best = answer.recommended
        others = [
            option
            for option in answer.options
            if best is not None and option.machine_count != best.machine_count
        ]
        advice.append(Advice(question, answer, others[0] if others else None))
    return advice


def _questions(measurements: Sequence[MeasurementRow]) -> list[Question]:
    """Return each condition once. One machine fits every network, so gangs set the networks."""
    usable = [row for row in measurements if row.status == OK and row.model and row.dataset]
    asked: dict[Question, None] = {}
    of_gangs = {_work(row) for row in usable if row.world_size > 1}
    for row in usable:
        if row.world_size > 1 or _work(row) not in of_gangs:
            asked.setdefault(_question(row))
    return sorted(asked, key=_order)


def _work(row: MeasurementRow) -> tuple[str | None, str | None, str, int]:
    return row.model, row.dataset, row.training_pass, row.global_batch_size


def _question(row: MeasurementRow) -> Question:
    return Question(
        origin=row.origin,
        model=row.model,
        dataset=row.dataset,
        training_pass=TrainingPass(row.training_pass),
        global_batch_size=row.global_batch_size,
        one_way_delay_s=row.one_way_delay_s,
        bandwidth_bytes_per_s=row.bandwidth_bytes_per_s,
        packet_loss_ratio=row.packet_loss_ratio,
        jitter_s=row.jitter_s,
    )


def _order(question: Question) -> tuple[str, str, str, int, float, float]:
    return (
        question.model or "",
        question.dataset or "",
        question.training_pass.value,
        question.global_batch_size,
        question.one_way_delay_s,
        question.packet_loss_ratio,
    )
