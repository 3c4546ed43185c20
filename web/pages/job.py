"""The page of one job: its story, its ranks, and what they looked like second by second."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from flask import Blueprint, flash, redirect, render_template, url_for
from flask.typing import ResponseReturnValue
from markupsafe import Markup
from sqlalchemy.orm import Session

from farm.core.codec import from_json
from farm.core.lifecycle import FINAL_JOB_STATES, JobState
from farm.core.noise import foreign_load_ratio
from farm.core.reports import PeersMeasured, Prepared, RankEnded, RankStarted, Sample, Shaped
from farm.core.spec import JobSpec
from farm.core.trainer_lines import Epoch
from farm.errors import NotFound
from farm.store.jobs import AttemptDetail, JobDetail, job_detail, request_cancel_job, retry_job
from farm.store.series import epochs_of, samples_by_rank, steps_of
from farm.store.tables import Rank
from web import params
from web.backend import backend, now, read_session, ring_after, write_session
from web.charts import Chart, Points, draw
from web.display import byte_count, byte_rate, duration, percent
from web.progress import waiting_reason
from web.series import StepPoint, thin_steps

bp = Blueprint("job", __name__)

_RANKS_DRAWN = 6  # as many colours as can be told apart
_RANKS_LISTED = 64
_POINTS_PER_LINE = 400
_STEP_POINTS = 800


@dataclass(frozen=True, slots=True)
class RankCard:
    """A rank and what it has reported so far."""

    row: Rank
    prepared: Prepared | None
    peers: PeersMeasured | None
    shaped: Shaped | None
    started: RankStarted | None
    ended: RankEnded | None

    @property
    def rtt_before_s(self) -> float | None:
        """The largest round-trip time to a peer on the untouched network."""
        return max((p.rtt_s for p in self.peers.rtts), default=None) if self.peers else None

    @property
    def rtt_shaped_s(self) -> float | None:
        """The largest round-trip time to a peer on the network as it was asked for."""
        return max((p.rtt_s for p in self.shaped.rtts), default=None) if self.shaped else None

    @property
    def bandwidth_bytes_per_s(self) -> float | None:
        """The smallest of what arrived at a peer per second, where a bandwidth was asked for."""
        bandwidths = self.shaped.bandwidths if self.shaped else ()
        return min((p.bytes_per_s for p in bandwidths), default=None)


@dataclass(frozen=True, slots=True)
class Drawing:
    title: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class _Metric:
    """A chart of one quantity of the samples; `top` is where its axis ends, if it is fixed."""

    title: str
    read: Callable[[Sample], float | None]
    write: Callable[[float | None], str]
    top: float | None = None


_METRICS = (
    _Metric("CPU of the trainers", lambda s: s.cpu_ratio, percent, 1.0),
    _Metric("Memory of the trainers", lambda s: s.resident_bytes, byte_count),
    _Metric("Received", lambda s: s.net_rx_bytes_per_s, byte_rate),
    _Metric("Sent", lambda s: s.net_tx_bytes_per_s, byte_rate),
)
# Drawn only where there was any: on a quiet machine they would be lines at zero.
_DISTURBANCES = (
    _Metric("Stolen by the hypervisor", lambda s: s.machine_steal_ratio, percent, 1.0),
    _Metric("Used by other programs", foreign_load_ratio, percent, 1.0),
    _Metric("Held back by a CPU quota", lambda s: s.throttled_ratio, percent, 1.0),
    _Metric("Swapped", lambda s: s.swap_bytes_per_s, byte_rate),
)


@dataclass(frozen=True, slots=True)
class AttemptView:
    """The attempt that the page shows; `drawn` are the ranks in its charts, in their order."""

    detail: AttemptDetail
    ranks: Sequence[RankCard]
    drawings: Sequence[Drawing]
    drawn: Sequence[int]
    epochs: Sequence[Epoch]


@bp.get("/jobs/<job_id>")
def get_job(job_id: str) -> ResponseReturnValue:
    """Show one job. Query: `attempt`, the number of the attempt to show; the last by default."""
    number, instant = params.row_id("job", job_id), now()
    wanted = params.optional_id(params.query("attempt"), "attempt")
    with read_session() as session:
        detail = job_detail(session, number)
        why = waiting_reason(session, detail.job, backend().settings, now=instant)
        chosen = _choose(detail, wanted)
        attempt = None if chosen is None else _view(session, chosen)
    state = detail.job.state
    return render_template(
        "job.html",
        detail=detail,
        job=detail.job,
        spec=from_json(JobSpec, detail.job.spec),
        measurement=detail.measurement,
        waits_because=why,
        attempt=attempt,
        ranks_listed=_RANKS_LISTED,
        is_over=state in FINAL_JOB_STATES,
        may_retry=state in (JobState.FAILED, JobState.CANCELLED),
    )


@bp.post("/jobs/<job_id>/cancel")
def post_cancel(job_id: str) -> ResponseReturnValue:
    """Cancel the job."""
    number = params.row_id("job", job_id)
    with write_session() as session:
        has_changed = request_cancel_job(session, number, now=now())
    flash("Cancelled." if has_changed else "There was nothing to cancel any more.")
    return ring_after(redirect(url_for(".get_job", job_id=number), HTTPStatus.SEE_OTHER))


@bp.post("/jobs/<job_id>/retry")
def post_retry(job_id: str) -> ResponseReturnValue:
    """Run the job again."""
    number = params.row_id("job", job_id)
    with write_session() as session:
        retry_job(session, number, now=now())
    flash("Back in the queue.")
    return ring_after(redirect(url_for(".get_job", job_id=number), HTTPStatus.SEE_OTHER))


def _choose(detail: JobDetail, number: int | None) -> AttemptDetail | None:
    if number is None:
        return detail.attempts[-1] if detail.attempts else None
    for attempt in detail.attempts:
        if attempt.attempt.number == number:
            return attempt
    raise NotFound(f"attempt {number} of job {detail.job.id}: there is none")


def _view(session: Session, detail: AttemptDetail) -> AttemptView:
    token = detail.attempt.id
    cards = [_card(rank) for rank in detail.ranks[:_RANKS_LISTED]]
    samples = samples_by_rank(session, token, max_points=_POINTS_PER_LINE)
    drawn = sorted(samples)[:_RANKS_DRAWN]
    steps = thin_steps(steps_of(session, token, rank=0), max_points=_STEP_POINTS)
    marked = _timed_window(cards)
    shown = {rank: samples[rank] for rank in drawn}
    return AttemptView(
        detail=detail,
        ranks=cards,
        drawings=[*_sample_drawings(shown, marked), *_step_drawing(steps, marked)],
        drawn=drawn,
        epochs=epochs_of(session, token, rank=0),
    )


def _card(row: Rank) -> RankCard:
    return RankCard(
        row=row,
        prepared=from_json(Prepared, row.prepared) if row.prepared else None,
        peers=from_json(PeersMeasured, row.peers) if row.peers else None,
        shaped=from_json(Shaped, row.shaped) if row.shaped else None,
        started=from_json(RankStarted, row.started) if row.started else None,
        ended=from_json(RankEnded, row.ended) if row.ended else None,
    )


def _timed_window(cards: Sequence[RankCard]) -> tuple[float, float] | None:
    ended = cards[0].ended if cards else None
    if ended is None or ended.result is None or ended.timed_begun_s is None:
        return None
    return ended.timed_begun_s, ended.timed_begun_s + ended.result.timed_window_s


def _sample_drawings(
    samples: Mapping[int, Sequence[Sample]], marked: tuple[float, float] | None
) -> list[Drawing]:
    if not samples:
        return []
    drawings = []
    for metric in (*_METRICS, *_DISTURBANCES):
        series: dict[str, Points] = {
            f"rank {rank}": [(float(s.tick), metric.read(s)) for s in row]
            for rank, row in samples.items()
        }
        if metric in _DISTURBANCES and not any(v for line in series.values() for _, v in line):
            continue
        chart = Chart(metric.title, series, metric.write, top=metric.top, marked=marked)
        drawings.append(Drawing(metric.title, draw(chart, gap_s=_gap_s(samples))))
    return drawings


def _gap_s(samples: Mapping[int, Sequence[Sample]]) -> float:
    """Return the usual distance of two samples and a half: a larger one is a hole."""
    distances = [
        later.tick - earlier.tick
        for row in samples.values()
        for earlier, later in itertools.pairwise(row)
    ]
    return 1.5 * min(distances, default=1)


def _step_drawing(steps: Sequence[StepPoint], marked: tuple[float, float] | None) -> list[Drawing]:
    if not steps:
        return []
    points: list[tuple[float, float | None]] = []
    for _, stretch in itertools.groupby(steps, key=lambda point: point.kind):
        points += [(point.begun_s, point.step_time_s) for point in stretch]
        # Warm-up and timed steps are different things: no line leads from one to the other.
        points.append((points[-1][0], None))
    title = "Step time of rank 0"
    chart = Chart(title, {"rank 0": points}, duration, marked=marked)
    return [Drawing(title, draw(chart, gap_s=float("inf")))]
