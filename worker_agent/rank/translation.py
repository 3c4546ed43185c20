"""What a trainer says, as the farm's reports have it: instants become seconds after *go*."""

from __future__ import annotations

import dataclasses

from farm.messages.reports import PeerRtt, RankEnded, RankStarted, ReportBody, StepTimes
from farm.messages.trainer_lines import Epoch, Event, Failure, Started, Steps, TrainerResult

# Of a failure's message, which is shown with its job in every list. The log has the rest.
_SHOWN_CHARACTERS = 2000


def report_of(event: Event, *, go_s: float) -> ReportBody | None:
    """Return what the server is told of an event on the way; None: nothing.

    `go_s` is the receipt of *go* by the same monotonic clock as the event's instants.
    """
    if isinstance(event, Started):
        return RankStarted(
            parameter_count=event.parameter_count,
            gradient_bytes=event.gradient_bytes,
            connect_s=event.connect_s,
            first_step_s=event.first_step_s,
        )
    if isinstance(event, Steps):
        return StepTimes(
            kind=event.kind,
            first_step=event.first_step,
            begun_s=event.begun_monotonic_s - go_s,
            times_s=event.times_s,
        )
    return event if isinstance(event, Epoch) else None


def end_of(
    outcome: TrainerResult | Failure,
    *,
    go_s: float,
    log_tail: str,
    rtts: tuple[PeerRtt, ...] = (),
) -> RankEnded:
    """Return a rank's last report. The log is of interest only where something went wrong."""
    if isinstance(outcome, Failure):
        outcome = dataclasses.replace(outcome, message=_shortened(outcome.message))
        return RankEnded(result=None, failure=outcome, timed_begun_s=None, log_tail=log_tail)
    return RankEnded(
        result=outcome,
        failure=None,
        timed_begun_s=outcome.timed_begun_monotonic_s - go_s,
        log_tail="",
        rtts=rtts,
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."
