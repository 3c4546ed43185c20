"""The types of questions, evidence, predictions and answers."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from farm.configuration.axes import CONDITION_AXES
from farm.configuration.spec import LARGEST
from farm.errors import InvalidSpec
from farm.measuring.measurement import OWN_ORIGIN
from farm.measuring.noise import UNDISTURBED, Disturbance
from farm.messages.trainer_lines import CONFIGURATION_FAILURES, FailureKind
from farm.recommend.configuration import Configuration, TrainingTask, network_of
from farm.recommend.setup import PUBLISHED, Setup
from farm.values.codec import to_json

# An interval whose ends are further apart than this factor does not support a recommendation.
WIDE_RATIO = 2.0
# A recommended option that is less probably the best is not shown as a sure answer.
FIRM_PROBABILITY = 0.5
AIMS = (0.8, 0.9)  # what the two intervals of a prediction are to cover
# Measurements of a plan: unless said, and where a regret is asked for.
DEFAULT_PLANNED, MAX_PLANNED = 5, 100


class Basis(enum.Enum):
    """How a prediction relates to the measurements."""

    MEASURED = "measured"  # this very configuration was
    INTERPOLATED = "interpolated"  # it lies between measured ones on every axis
    EXTRAPOLATED = "extrapolated"  # it lies beyond them on one axis at least
    UNKNOWN = "unknown"  # nothing is said, and `unknown_because` says why


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The time of one synchronous step; all times are None where it is unknown.

    `low_s` to `high_s` is the 90 % prediction interval, `low80_s` to `high80_s` the 80 % one:
    where one more measurement of this configuration is expected to fall. `measurement_ids`: the
    repetitions of this configuration, or the nearest measurements that the value rests on.
    `speculative_because`: why the value is a guess, such as a world size far beyond those that were
    measured like this; None: measurements bear it out.
    """

    step_time_s: float | None
    low_s: float | None
    high_s: float | None
    low80_s: float | None
    high80_s: float | None
    basis: Basis
    measurement_ids: tuple[int, ...] = ()
    unknown_because: str | None = None
    speculative_because: str | None = None

    @classmethod
    def unknown(cls, because: str | None) -> Prediction:
        """Return an empty prediction with a reason."""
        return cls(
            step_time_s=None,
            low_s=None,
            high_s=None,
            low80_s=None,
            high80_s=None,
            basis=Basis.UNKNOWN,
            unknown_because=because,
        )


class Suspicious(Protocol):
    """A measurement that is hard to believe, and why."""

    @property
    def measurement_id(self) -> int: ...

    @property
    def message(self) -> str: ...


class StepTimeModel(Protocol):
    """Fitted to all measurements of one origin and kind of hardware, and calibrated."""

    @property
    def suspicions(self) -> Sequence[Suspicious]: ...

    @property
    def predictor_name(self) -> str: ...

    def predict(self, configurations: Sequence[Configuration]) -> list[Prediction]:
        """Return a prediction for each, in order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(TrainingTask):
    """Train what, on which network. Empty tuples leave a choice open.

    `strategies`, `world_sizes` and `instance_types` narrow down gangs, and the last one machine
    too; one machine is always considered, since it is what every gang has to beat. World sizes
    that are named are considered even if they were never measured. None for the model and the data
    set is enough where the origin has one workload. `script` stands for both: a user's script, in
    the newest version that was measured, or in that of `script_sha256`, with the values of its own
    parameters that `script_parameters` names, such as "hidden=256". With `target_accuracy_ratio`
    the training lasts until that accuracy is reached, and `epochs` is not looked at.
    """

    origin: str = OWN_ORIGIN
    script: str | None = None
    script_sha256: str | None = None
    script_parameters: tuple[str, ...] = ()
    epochs: int = 1
    target_accuracy_ratio: float | None = None
    strategies: tuple[str, ...] = ()
    world_sizes: tuple[int, ...] = ()
    instance_types: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()

    @property
    def known_networks(self) -> frozenset[str | None]:
        """Return its networks by the names that configurations have."""
        return frozenset(map(network_of, self.networks))

    def __post_init__(self) -> None:
        for axis, value in zip(CONDITION_AXES, self.conditions, strict=True):
            if value is not None:
                if not value >= 0:
                    raise InvalidSpec(axis.field, value, "at least 0")
                # What is below its resolution is asked for as 0, as sweeps do.
                object.__setattr__(self, axis.field, axis.canonical(value))
        if self.script is not None and self.model is not None:
            raise InvalidSpec("script", self.script, "either script or model, not both")
        if self.script is None and self.script_sha256 is not None:
            raise InvalidSpec("script_sha256", self.script_sha256, "nothing without script")
        if self.script_sha256 == "":
            raise InvalidSpec("script_sha256", "", "the first of its digits")
        if self.script is None and self.script_parameters:
            raise InvalidSpec("parameter", self.script_parameters[0], "nothing without script")
        if self.global_batch_size < 1:
            raise InvalidSpec("global_batch_size", self.global_batch_size, "at least 1")
        if self.epochs < 1:
            raise InvalidSpec("epochs", self.epochs, "at least 1")
        if any(world_size < 1 for world_size in self.world_sizes):
            raise InvalidSpec("world_sizes", self.world_sizes, "whole numbers of at least 1")
        target = self.target_accuracy_ratio
        if target is not None and not 0 < target <= 1:
            raise InvalidSpec("target_accuracy", target, "a ratio above 0, at most 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Minimise alpha x time_s + beta x cost_usd within the limits; None is no limit.

    `alpha` in 1/s and `beta` in 1/USD, so that the sum has no unit. `budget_usd` and
    `deadline_s` are held against the upper ends of the 90 % intervals of cost and time, the other
    limits against the expected values.
    """

    alpha: float = 1.0
    beta: float = 0.0
    budget_usd: float | None = None
    deadline_s: float | None = None
    min_accuracy_ratio: float | None = None
    max_machine_count: int | None = None

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if value != 0 and not 1 / LARGEST <= value <= LARGEST:
                raise InvalidSpec(name, value, f"0, or from {1 / LARGEST:g} to {LARGEST:g}")
        for name in ("budget_usd", "deadline_s", "min_accuracy_ratio"):
            limit = getattr(self, name)
            if limit is not None and not limit >= 0:
                raise InvalidSpec(name, limit, "a number of at least 0")
        if self.alpha == self.beta == 0:
            raise InvalidSpec("alpha", self.alpha, "alpha or beta above 0")
        if self.max_machine_count is not None and self.max_machine_count < 1:
            raise InvalidSpec("machines", self.max_machine_count, "at least 1")


# Statuses: one machine or another failed, which says nothing about the configuration.
MACHINE_STATUSES = frozenset(kind.value for kind in FailureKind) - {
    kind.value for kind in CONFIGURATION_FAILURES
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One measurement of the workload. `status` other than "ok": it failed, and has no time.

    `accuracy`: after `epochs`; None: nobody says how many. `agents`: of its ranks, none where it
    was imported.
    """

    measurement_id: int
    configuration: Configuration
    status: str
    fingerprint: str | None
    step_time_s: float | None
    step_time_spread_s: float | None
    steps_per_epoch: int | None
    time_per_epoch_s: float | None
    accuracy: float | None
    epochs: int | None = None
    energy_per_step_j: float | None = None
    attempt_id: int | None = None
    disturbance: Disturbance = UNDISTURBED
    agents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One configuration with its measured or predicted values.

    `time_per_epoch_s` and `step_time_s` are medians over the repetitions, or predictions; `basis`
    says which, see `Basis`. `spread_s` is the range of the former over
    the repetitions, and `step_time_spread_s` the median interquartile range of the steps within
    one. `low_s` to `high_s` (90 %) and `low80_s` to `high80_s` are prediction intervals of
    `time_per_epoch_s`, `step_low_s` and so on of `step_time_s`; None where nothing tells them.

    `accuracy` was measured after `accuracy_epochs`, at most those asked for; None: nobody says.
    Where it was measured after more epochs only, it is None, and these are told.

    `time_s`, `cost_usd` and `energy_j` are those of the whole training asked for, `epoch_count` its
    length, and `time_high_s`, `cost_high_usd` and `energy_high_j` the upper ends of their 90 %
    intervals. Energy is `power_w` times the time: the median energy of a step of all its machines
    over the median step time; both are None where nobody measured it. If the length of an epoch is
    not known, all of these are None except the power, and only `step_time_s` is given.
    `measurement_ids` are the repetitions, or the measurements that the prediction rests on most.
    `disturbed_ids`: those of them that something disturbed, see `farm.measuring.noise`.
    `set_aside_ids`: disturbed measurements of the same configuration that do not count, since
    undisturbed ones do. `disturbed_by`: the kinds of what disturbed either.
    `speculative_because`: why the time is a
    guess, see `Prediction`; None: it is none. `unjudged_because`: what is
    not known of it, so that it could not be ranked or held against a limit. `is_synchronous` False:
    it computes other updates than synchronous training, so that equal epochs need not give equal
    accuracy.
    """

    strategy: str | None
    world_size: int
    server_count: int
    instance_type: str | None
    framework: str | None
    setup: Setup = field(metadata=PUBLISHED)
    network: str | None
    fingerprint: str | None
    time_per_epoch_s: float | None
    step_time_s: float | None
    step_time_spread_s: float | None
    spread_s: float | None
    low_s: float | None
    high_s: float | None
    low80_s: float | None
    high80_s: float | None
    time_s: float | None
    cost_usd: float | None
    accuracy: float | None
    repetition_count: int
    basis: str
    measurement_ids: tuple[int, ...]
    step_low_s: float | None = None
    step_high_s: float | None = None
    step_low80_s: float | None = None
    step_high80_s: float | None = None
    steps_per_epoch: int | None = None
    epoch_count: int | None = None
    accuracy_epochs: int | None = None
    time_high_s: float | None = None
    cost_high_usd: float | None = None
    price_usd_per_hour: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    energy_high_j: float | None = None
    score: float | None = None  # alpha x time_s + beta x cost_usd; None: it cannot be told
    excluded_because: str | None = None
    unjudged_because: str | None = None
    disturbed_ids: tuple[int, ...] = ()
    set_aside_ids: tuple[int, ...] = ()
    disturbed_by: tuple[str, ...] = ()
    speculative_because: str | None = None
    is_synchronous: bool = True

    @property
    def machine_count(self) -> int:
        """Ranks that train, and servers on machines of their own."""
        return self.setup.machine_count(self.world_size, self.server_count)

    @property
    def serving_machine_count(self) -> int:
        """Those of them that only serve."""
        return self.setup.serving_machine_count(self.server_count)

    @property
    def is_one_machine(self) -> bool:
        """Whether it needs no network at all."""
        return self.world_size == 1 and self.server_count == 0

    @property
    def missing_epochs(self) -> int | None:
        """How many epochs less than asked for the accuracy was measured after, if that is known."""
        if self.accuracy_epochs is None or self.epoch_count is None:
            return None
        return self.epoch_count - self.accuracy_epochs

    @property
    def interval_ratios(self) -> tuple[float, float] | None:
        """The ends of the 90 % interval over the expected time; None where it is not known."""
        time_s, low_s, high_s = self.step_time_s, self.step_low_s, self.step_high_s
        if not time_s:
            time_s, low_s, high_s = self.time_per_epoch_s, self.low_s, self.high_s
        return (low_s / time_s, high_s / time_s) if time_s and low_s and high_s else None

    @property
    def is_wide(self) -> bool:
        """Whether the ends of the 90 % interval are more than a factor of two apart."""
        ratios = self.interval_ratios
        return ratios is not None and ratios[1] > WIDE_RATIO * ratios[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """`options` has every candidate: the recommended one, then by score, excluded ones last.

    `headline`: the answer in one sentence, which "Recommended:" may stand before.

    `recommended` None goes with a `reason`. It is the best that was measured or interpolated;
    `cautions` say why it may not be relied on, and `best_probability` how likely no other option
    within the limits is better, None where the interval of one is not known, or something else of
    one that may be better. `worth_measuring`:
    guesses that may be better.

    `fastest`, `cheapest` and `least_energy`: what would be recommended if time, cost or energy
    alone counted, of the options of which it is known; None goes with a reason in
    `least_unknown_because`, by these names.

    `measurement_count`: how many measurements of the workload were looked at. `disturbed_count`:
    how many of the `rests_on_count` measurements behind the options something disturbed.
    `predictor`: what made the predictions among the options, and `predictor_measurement_count` how
    many measurements it was fitted to; None where there are none. `is_preliminary`: predictions are
    being fitted or renewed, so the same question may soon get another answer.
    """

    model: str | None
    dataset: str | None
    recommended: Option | None
    reason: str | None
    headline: str = ""
    options: tuple[Option, ...] = ()
    pareto: tuple[Option, ...] = ()
    warnings: tuple[str, ...] = ()
    measurement_count: int = 0
    predictor: str | None = None
    predictor_measurement_count: int | None = None
    is_preliminary: bool = False
    cautions: tuple[str, ...] = ()
    best_probability: float | None = None
    worth_measuring: tuple[Option, ...] = ()
    fastest: Option | None = None
    cheapest: Option | None = None
    least_energy: Option | None = None
    least_unknown_because: Mapping[str, str] = field(default_factory=dict)
    rests_on_count: int = 0
    disturbed_count: int = 0

    @property
    def is_firm(self) -> bool:
        """Whether the recommended option may be shown as a sure answer.

        It may not where some other option is as likely as not to be better, or nobody knows.
        """
        best, probability = self.recommended, self.best_probability
        is_likely = probability is not None and probability >= FIRM_PROBABILITY
        known = best is not None and best.interval_ratios is not None
        return known and is_likely and not self.cautions

    def to_json(self) -> Mapping[str, object]:
        """Return the JSON values of the API's answer."""
        answer = to_json(self)
        assert isinstance(answer, dict)
        return answer
