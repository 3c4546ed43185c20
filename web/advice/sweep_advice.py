"""The recommendations that follow from a sweep's measurements.

They are cached until the store has other measurements: pages ask every two seconds, and each answer
reads all measurements of its workload. If there are many, a background thread computes the answer,
and the previous one is shown meanwhile. Only measured configurations are compared. Fitting a
predictor after every result could disturb the measurements, if the server runs on the same machine.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.configuration.axes import profile_numbers
from farm.processes.cache import Cache, CachedValue
from farm.recommend.answering.measured import distinctions, distinguishing_fields
from farm.recommend.cache.knowledge import RecommenderCache
from farm.recommend.contracts import Option, Question, Recommendation
from farm.recommend.sweeps.answers import OwnAnswer, SweepShare, answers_for
from farm.store.dashboard import measurement_stamp
from farm.store.engine import reading
from farm.text.plurals import counted

logger = logging.getLogger(__name__)

MAX_ANSWERS = 8
MANY_MEASUREMENTS = 500  # answers to fewer are made within the request
_SWEEPS_KEPT = 32
_REST_S = 15.0  # between two answers that take long


@dataclass(frozen=True, slots=True)
class Advice:
    """`runner_up`: the best option with another number of machines; None: there is none."""

    question: Question
    answer: Recommendation
    runner_up: Option | None
    found: OwnAnswer

    @property
    def share(self) -> SweepShare | None:
        """The sweep's share of the evidence for the recommended option; None without one."""
        best = self.answer.recommended
        return None if best is None else self.found.share_of(best)

    @property
    def runner_up_share(self) -> SweepShare | None:
        """The same for the runner-up."""
        return None if self.runner_up is None else self.found.share_of(self.runner_up)

    @property
    def address(self) -> dict[str, str]:
        """The query of the page that answers the same question with all options."""
        question = self.question
        return {
            "origin": question.origin,
            **({"model": question.model} if question.model else {}),
            **({"dataset": question.dataset} if question.dataset else {}),
            "pass": question.training_pass.value,
            "global_batch_size": str(question.global_batch_size),
            **{name: f"{value:.9g}" for name, value in profile_numbers(question).items()},
        }

    @property
    def also_differs_in(self) -> list[str]:
        """Differences of the recommended option from the others, beside strategy and size."""
        best = self.answer.recommended
        if best is None:
            return []
        servers = [counted(best.server_count, "server")] if best.server_count else []
        types = [best.instance_type] if best.instance_type else []
        return servers + types + distinctions(best, distinguishing_fields(self.answer.options))

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


# With the stamp of the measurements that it follows from; None: it could not be made.
_Stamped: TypeAlias = tuple[Hashable, Sequence[Advice]]


class SweepAdvice:
    """A cache of the advice for the sweeps that were viewed last. Threads share it."""

    def __init__(
        self, engine: sa.Engine, cache: RecommenderCache, *, many: int = MANY_MEASUREMENTS
    ) -> None:
        self._engine = engine
        self._cache = cache
        self._many = many
        self._kept = Cache(most=_SWEEPS_KEPT)

    def of_sweep(self, session: Session, sweep_id: int) -> Sequence[Advice] | None:
        """Return the advice from the session's or earlier measurements; None: ask again."""
        stamp = measurement_stamp(session)
        assert isinstance(stamp, tuple)  # it begins with how many measurements there are

        def is_good(made: CachedValue[_Stamped]) -> bool:
            return made.value[0] == stamp

        if stamp[0] <= self._many:
            return self._kept.get(
                sweep_id,
                lambda _: (stamp, advise(session, sweep_id, self._cache)),
                is_good=is_good,
            )[1]
        found = self._kept.at_once(
            sweep_id, lambda: self._made(sweep_id), is_good=is_good, rest_s=_REST_S
        )
        return None if found is None else found[1]

    def _made(self, sweep_id: int) -> _Stamped:
        try:
            with reading(self._engine) as session:
                return measurement_stamp(session), advise(session, sweep_id, self._cache)
        except Exception:
            logger.exception("the advice of a sweep could not be made", extra={"sweep": sweep_id})
            return None, ()  # not tried again with every look


def advise(session: Session, sweep_id: int, cache: RecommenderCache) -> list[Advice]:
    """Answer for the conditions of the sweep's measurements, at most `MAX_ANSWERS` of them."""
    advice = []
    for found in answers_for(session, sweep_id, cache=cache, most=MAX_ANSWERS):
        best, options = found.answer.recommended, found.answer.options
        others = [
            option
            for option in options
            if best is not None and option.machine_count != best.machine_count
        ]
        runner_up = others[0] if others else None
        advice.append(Advice(found.question, found.answer, runner_up, found))
    return advice
