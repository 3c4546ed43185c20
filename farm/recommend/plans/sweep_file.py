"""Writes a plan as a sweep file, with the reason for each case as a comment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from farm.configuration.axes import SETUP_AXES, profile_numbers
from farm.configuration.catalogue import Catalogue, StrategyFacts
from farm.configuration.own_data import find_dataset
from farm.configuration.spec import EMULATOR_NAMES, UNTOUCHED, ServerPlacement, TrainingPass
from farm.measuring.measurement import OWN_ORIGIN
from farm.recommend.configuration import Configuration
from farm.recommend.features import canonical
from farm.recommend.plans.planner import MeasurementPlan
from farm.text.display import percent_in_digits
from farm.text.plurals import counted
from farm.text.toml_text import string_text, value_text

_UNNAMED = "unnamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepForm:
    """How the measurements are made. `cost_unit`: see `MeasuringCosts`."""

    name: str
    origin: str
    step_count: int
    warmup_step_count: int
    cost_unit: str


def sweep_text(planned: MeasurementPlan, form: SweepForm, *, catalogue: Catalogue) -> str:
    """Return TOML that `farm submit` takes: one case for each proposal, in their order.

    Names that are not registered here, as those of an imported study, are written as they are,
    and listed in a comment at the top: `farm submit` refuses them until they are mapped.
    """
    configurations = [canonical(proposal.configuration) for proposal in planned.proposals]
    lines = [
        f"# {counted(len(configurations), 'measurement')} for the origin {form.origin!a}, "
        "in the order of their use",
        f"# expected regret over {planned.choice_count} questions: "
        f"{percent_in_digits(planned.regret_before_ratio, 3)} now, "
        f"{percent_in_digits(planned.regret_after_ratio, 3)} afterwards",
        f"# expected cost: {planned.cost:.4g} {form.cost_unit}",
    ]
    for field, names in unregistered(configurations, catalogue).items():
        shown = ", ".join(string_text(name) for name in names)
        lines.append(f"# map before submitting: no {field} is registered here as {shown}")
    lines += ["", f"name = {string_text(form.name)}"]
    if any(_needs_repeat(c, catalogue) for c in configurations):
        lines.append("repeat = true")
    for proposal, configuration in zip(planned.proposals, configurations, strict=True):
        fields = case(configuration, form, catalogue.strategies.get(configuration.strategy or ""))
        lines += [
            "",
            f"# {_comment(proposal.reason)}",
            f"# regret {percent_in_digits(proposal.regret_before_ratio, 3)} to "
            f"{percent_in_digits(proposal.regret_after_ratio, 3)}, "
            f"cost {proposal.cost:.4g} {form.cost_unit}",
            "[[case]]",
            *(f"{key} = {value_text(value)}" for key, value in fields.items()),
        ]
    return "\n".join(lines) + "\n"


def case(
    configuration: Configuration, form: SweepForm, facts: StrategyFacts | None = None
) -> dict[str, object]:
    """Return the case of one configuration, in the units of a sweep file; defaults are left out.

    `facts`: of its strategy, None where it is not registered here.
    """
    c = configuration
    emulator = (c.network or "").rpartition("+")[2]
    fields: dict[str, object] = {
        "model": c.model or _UNNAMED,
        "dataset": c.dataset or _UNNAMED,
        "strategy": c.strategy or _UNNAMED,
        "world_size": c.world_size,
        "global_batch_size": c.global_batch_size,
        "steps": form.step_count,
        "warmup_steps": form.warmup_step_count,
    }
    setup = c.setup.in_sweep_file
    optional: dict[str, object] = {
        "server_count": c.server_count or None,
        **_unsaid(c, facts),
        **setup,
        "network": _network(c, form),
        **profile_numbers(c),
        "pass": None if c.training_pass is TrainingPass.FORWARD_BACKWARD else c.training_pass.value,
        "emulator": emulator if emulator in EMULATOR_NAMES else None,
        "labels": {"instance_type": c.instance_type} if c.instance_type else None,
    }
    # What is said is no default, not even 0.
    return fields | {key: value for key, value in optional.items() if value is not None}


def _unsaid(c: Configuration, facts: StrategyFacts | None) -> dict[str, object]:
    """Return what a set-up leaves out, but a sweep file has another default for."""
    found: dict[str, object] = {
        axis.name: axis.value_at(axis.address(usual))
        for axis in SETUP_AXES
        if facts is not None
        and (usual := axis.usual) is not None  # else a set-up leaves nothing out
        and usual != axis.default_value
        and axis.applies(facts, c.world_size)
    }
    if c.server_count:
        found["server_placement"] = ServerPlacement.APART.value
    return found


def _network(c: Configuration, form: SweepForm) -> str | None:
    """Return which of the agents' networks it was; of others' networks the agents know no names."""
    name = (c.network or "").partition("+")[0]
    is_named = form.origin == OWN_ORIGIN and name not in ("", UNTOUCHED, *EMULATOR_NAMES)
    return name if is_named else None


def unregistered(
    configurations: Sequence[Configuration], catalogue: Catalogue
) -> dict[str, list[str]]:
    """Return the names that `farm submit` would refuse, by the field they stand in."""
    known: Mapping[str, Callable[[str], object]] = {
        "model": catalogue.models.get,
        "dataset": lambda name: find_dataset(name, catalogue.datasets),
        "strategy": catalogue.strategies.get,
    }
    found: dict[str, list[str]] = {}
    for field, find in known.items():
        names = dict.fromkeys(getattr(c, field) or _UNNAMED for c in configurations)
        missing = [name for name in names if find(name) is None]
        if missing:
            found[field] = missing
    return found


def _needs_repeat(c: Configuration, catalogue: Catalogue) -> bool:
    dataset = find_dataset(c.dataset, catalogue.datasets)
    return dataset is not None and c.global_batch_size > dataset.train_examples_count


def _comment(text: str) -> str:
    return text if text.isprintable() else ascii(text)
