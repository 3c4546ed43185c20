"""Writes an answer as one sentence, worded as firmly as its evidence allows. Pure."""

from __future__ import annotations

from farm.recommend.answering.measured import (
    DistinguishingFields,
    distinctions,
    distinguishing_fields,
    servers_words,
)
from farm.recommend.contracts import Basis, Option, Recommendation
from farm.text import display
from farm.text.plurals import counted


def headline_of(answer: Recommendation) -> str:
    """Return the recommendation and its evidence in words, or why there is none."""
    best = answer.recommended
    if best is None:
        return f"nothing, because {answer.reason}"
    time = f"{display.duration(best.time_per_epoch_s)} an epoch"
    if best.time_per_epoch_s is None:
        time = f"{display.duration(best.step_time_s)} a step"
    text = f"{named(best, distinguishing_fields(answer.options))}: {time}, {best.basis}"
    # The cautions of what is disturbed or a guess come first.
    leading_count = bool(best.disturbed_ids) + bool(best.speculative_because)
    if leading := answer.cautions[:leading_count]:
        text = f"{'; '.join(leading)}: {text}"
    if best.basis == Basis.MEASURED.value:
        text = f"{text} in {counted(best.repetition_count, 'repetition')}"
    else:
        text = f"{text} from {counted(answer.predictor_measurement_count or 0, 'measurement')}"
    if answer.best_probability is not None and len(answer.options) > 1:
        probability = display.likely(answer.best_probability)
        text = f"{text}; the best of all options with a probability of {probability}"
    return "; ".join([text, *answer.cautions[leading_count:]])


def named(option: Option, by: DistinguishingFields) -> str:
    """Name an option by its size, and by its differences from the other options."""
    servers = servers_words(option.server_count)
    parts = [option.strategy or "unnamed strategy", *filter(None, [option.instance_type])]
    parts += distinctions(option, by)
    return f"world size {option.world_size}{servers} ({', '.join(parts)})"
