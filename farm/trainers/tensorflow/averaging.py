"""A TensorFlow rank that trains its own weights and averages them periodically.

TensorFlow's own strategies sum gradients in each step. Here its collective operations average the
weights instead, among all ranks or among some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from farm.trainers.averaging import AveragingSchedule, RankGroup, collective_seconds_per_step
from farm.trainers.contracts import Evaluation, Gang, RankContext
from farm.trainers.tensorflow.engine import TensorFlowEngine
from farm.trainers.tensorflow.gang import join_collective
from farm.trainers.tensorflow.profile import collective_times

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from farm.trainers.contracts import IndexArray

# Keys name the groups and the collectives of one process group; TensorFlow's own begin at 1.
_FIRST_KEY = 1 << 20


class WeightAverage:
    """The mean of variables over a group of ranks, in one all-reduce of all of them end to end."""

    def __init__(self, variables: Sequence[Any], *, group: RankGroup, key: int) -> None:
        self._variables = [v.value for v in variables]
        self._sizes = [int(np.prod(v.shape)) for v in variables]
        self._group_size = len(group)
        self._key = key
        # Without autograph: see TensorFlowEngine.
        self.mean = tf.function(self._mean, autograph=False)
        self.apply = tf.function(self._apply, autograph=False)

    def _mean(self) -> list[Any]:
        """Return the means; every rank of the group must call it."""
        flat = tf.concat([tf.reshape(v, [-1]) for v in self._variables], axis=0)
        mean = tf.raw_ops.CollectiveReduceV2(
            input=flat,
            group_size=self._group_size,
            group_key=self._key,
            instance_key=self._key,
            ordering_token=[],
            merge_op="Add",
            final_op="Div",
            communication_hint="auto",
        )
        parts = tf.split(mean, self._sizes)
        return [tf.reshape(part, v.shape) for part, v in zip(parts, self._variables, strict=True)]

    def _apply(self) -> None:
        """Set the variables to the means; every rank of the group must call it."""
        for variable, mean in zip(self._variables, self._mean(), strict=True):
            variable.assign(mean)


class AveragingEngine(TensorFlowEngine):
    """Steps on the rank's own share, and averages after them as its schedule says.

    Averaged is what the model is: trained weights and moving statistics. The optimizer's momentum
    stays with the rank. A rank without examples in a step makes no update and averages
    nonetheless. What is evaluated, and summed by `weight_sums` until the next step, is the mean of
    all ranks.
    """

    def __init__(
        self, rank_context: RankContext, schedule: AveragingSchedule, *, gang: Gang
    ) -> None:
        super().__init__(rank_context, strategy=tf.distribute.get_strategy(), gang=gang)
        self._schedule = schedule
        self._does_average = not self._is_forward
        self._step_count = 0
        self._evaluated: list[NDArray[Any]] | None = None
        trained = list(self._model.trainable_variables)
        moving = [v for v in self._model.non_trainable_variables if v.dtype.startswith("float")]
        self._averaged_variables = trained + moving
        everyone = tuple(range(rank_context.job.world_size))
        self._overall = WeightAverage(self._averaged_variables, group=everyone, key=_FIRST_KEY)
        self._averages = {
            group: WeightAverage(
                self._averaged_variables,
                group=group,
                key=_FIRST_KEY + 1 + group[0] * rank_context.job.world_size + group[-1],
            )
            for group in schedule.groups()
        }
        self._meet()

    @classmethod
    def join(cls, rank_context: RankContext, schedule: AveragingSchedule) -> AveragingEngine:
        """Connect to the peers and build the model.

        Raises:
            RankFailed: this rank's own port is taken.
        """
        # The strategy object is not used: building it makes the processes a cluster.
        _, gang = join_collective(rank_context, "AUTO")
        return cls(rank_context, schedule, gang=gang)

    def step(self, indices: IndexArray, *, examples_count: int) -> float:
        """Train on own examples, and average weights where the schedule says so."""
        self._evaluated = None
        loss_sum = 0.0
        if len(indices) > 0:
            loss_sum = self._run(indices, 1.0 / len(indices), examples_count=examples_count)
            self._count_update(examples_count)
        elif self.loader is not None:
            self.loader.next(indices)
        group = self._schedule.group_after(self._step_count)
        if group is not None and self._does_average:
            self._averages[group].apply()
        self._step_count += 1
        return loss_sum

    def prepare_evaluation(self) -> None:
        self._evaluated = [mean.numpy() for mean in self._overall.mean()]

    def evaluate(self, on_batch: Callable[[], None]) -> Evaluation:
        assert self._evaluated is not None
        own = self._own_weights()
        self._set_weights(self._evaluated)
        try:
            return super().evaluate(on_batch)
        finally:
            self._set_weights(own)

    def save(self) -> list[NDArray[Any]]:
        return [np.array(self._step_count), *super().save()]

    def restore(self, state: object) -> None:
        assert isinstance(state, list)
        self._evaluated = None
        self._step_count = int(state[0])
        super().restore(state[1:])

    def trace(self, run_steps: Callable[[], None]) -> tuple[float, ...] | None:
        """Return one time for each step, 0 where its schedule has no average."""
        first = self._step_count
        times_s = collective_times(run_steps)
        if times_s is None:
            return None
        steps = range(first, self._step_count)
        counts = [int(self._schedule.group_after(step) is not None) for step in steps]
        return collective_seconds_per_step(counts, times_s)

    def _trained_weights(self) -> list[NDArray[Any]]:
        trained = super()._trained_weights()
        return trained if self._evaluated is None else self._evaluated[: len(trained)]

    def _meet(self) -> None:
        """Average once with each group, so that connections and functions are there in time.

        The weights, still the same everywhere, are put back to the last bit.
        """
        own = self._own_weights()
        for average in self._averages.values():
            average.apply()
        self._set_weights(own)

    def _own_weights(self) -> list[NDArray[Any]]:
        return [np.array(v.numpy()) for v in self._averaged_variables]

    def _set_weights(self, values: Sequence[NDArray[Any]]) -> None:
        for variable, value in zip(self._averaged_variables, values, strict=True):
            variable.assign(value)
