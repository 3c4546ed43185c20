"""The page of a job on a real store: what people see of it, how much of it, and what stays live."""

from __future__ import annotations

import datetime as dt
import html
import json
import re
from typing import Any

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.configuration.spec import NetworkProfile
from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.reports import PeerBandwidth, PeerRtt, PeersMeasured, Sample, Shaped, StepTimes
from farm.messages.trainer_lines import StepKind
from farm.store.engine import writing
from farm.store.result_tables import MeasurementRow
from farm.store.tables import AttemptRow, JobEvent, JobRow, RankRow
from farm.values.codec import to_json
from tests import factories
from tests.facts import lacking
from tests.stored.stored_series import insert_samples, insert_steps
from tests.web.web_client import (
    Seeded,
    client_of,
    csrf_of,
    make_api_token,
    seed,
    sign_in,
    without_limits,
)
from tests.web.web_reading import rows_of

EVIL = "<script>alert('x')</script>"


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


@pytest.fixture
def seeded(engine: sa.Engine) -> Seeded:
    return seed(engine, name=EVIL, log_tail=EVIL)


def _page(client: FlaskClient, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    return answer.get_data(as_text=True)


def _read(page: str) -> str:
    """Return what is read of a page: without tags and data, spaces folded."""
    page = re.sub(r'<script type="application/json">.*?</script>', " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def _part(page: str, name: str) -> str:
    """Return a section by its id."""
    return page.split(f'id="{name}"', 1)[1].split("</section>", 1)[0]


def _chart(page: str, key: str) -> dict[str, Any]:
    source = page.split(f'id="plot-{key}"', 1)[1]
    text = source.split('<script type="application/json">', 1)[1].split("</script>", 1)[0]
    found: dict[str, Any] = json.loads(text)
    return found


def _lines(page: str, key: str) -> dict[str, list[tuple[float, float | None]]]:
    """Return what a chart draws, in the unit of its seconds."""
    return {
        trace["name"]: list(zip(trace["x"], trace["y"], strict=True))
        for trace in _chart(page, key)["data"]
    }


def _gang(
    engine: sa.Engine, size: int, *, state: AttemptState = AttemptState.RUNNING, **changes: Any
) -> tuple[int, int]:
    """Add a job with an attempt of so many ranks; return the job and the attempt's token."""
    with writing(engine) as session:
        spec = factories.job_spec(world_size=size, global_batch_size=64 * size, **changes)
        job_id = factories.add_job(session, spec)
        agents = [factories.add_agent(session, f"agent-{n}") for n in range(size)]
        return job_id, factories.add_attempt(session, job_id, agents, state=state)


def _sample(engine: sa.Engine, token: int, *samples: Sample, rank: int = 0) -> None:
    with writing(engine) as session:
        day = session.get_one(AttemptRow, token).leased_at.date()
        insert_samples(session, day=day, token=token, rank=rank, samples=samples)


def test_a_job_shows_its_ranks_second_by_second_with_its_steps_laid_over(
    client: FlaskClient, seeded: Seeded
) -> None:
    page = _page(client, f"/jobs/{seeded.measured}")
    cpu = _part(page, "plot-cpu-ratio")
    assert cpu.split("</table>", 1)[0].count("<tr>") == 1 + 3  # two ranks, and the steps of rank 0
    assert "Not measured." in _part(page, "plot-resident-bytes").split("</figure>", 1)[0]
    lines = _lines(page, "cpu-ratio")
    assert list(lines) == ["step", "rank 0", "rank 1"]
    assert [second for second, value in lines["rank 0"] if value is not None] == [
        *range(5),
        *range(6, 10),
    ]
    assert [value for _, value in lines["step"]][::3] == [0.1, 0.2, 0.3]
    shades = {one["kind"]: (one["x0"], one["x1"]) for one in _chart(page, "cpu-ratio")["shades"]}
    assert shades == {"timed": (1.0, pytest.approx(1.6))}
    assert "machine-steal" not in _read(page)
    text = _read(page)
    assert "Attempt 1 succeeded" in text
    assert "Rank 0 on a1" in text


def test_the_steps_are_told_in_numbers_and_as_a_histogram(
    client: FlaskClient, engine: sa.Engine
) -> None:
    job_id, token = _gang(engine, 2)
    times_s = [0.25] * 99 + [4.0]
    with writing(engine) as session:
        warmup = StepTimes(kind=StepKind.WARMUP, first_step=0, begun_s=0.0, times_s=(9.0,))
        timed = StepTimes(kind=StepKind.TIMED, first_step=1, begun_s=9.0, times_s=tuple(times_s))
        for chunk in (warmup, timed):
            insert_steps(session, token=token, rank=0, steps=chunk)
    page = _page(client, f"/jobs/{job_id}")
    text = _read(_part(page, "steps"))
    assert "far from the median 1 of 100" in text
    assert "step 100 took 4.00 s, 33.8 s after go" in text
    assert "median 250 ms" in text
    assert _lines(page, "step-time")["far from the median"] == [(33.75, 4.0)]
    assert [one["y"] for one in _chart(page, "step-times")["data"]] == [[99], [1]]


def test_what_disturbed_is_drawn_where_there_was_any(
    client: FlaskClient, engine: sa.Engine
) -> None:
    job_id, token = _gang(engine, 2)
    _sample(engine, token, Sample(tick=0, machine_steal_ratio=0.01), Sample(tick=1))
    assert 'id="plot-machine-steal-ratio"' not in _page(client, f"/jobs/{job_id}")
    _sample(engine, token, Sample(tick=0, machine_steal_ratio=0.5), rank=1)
    page = _page(client_of(engine), f"/jobs/{job_id}")
    assert _lines(page, "machine-steal-ratio") == {
        "rank 0": [(0, 0.01), (1, None)],
        "rank 1": [(0, 0.5)],
    }


def test_a_long_run_comes_in_few_points_with_its_peak(
    client: FlaskClient, engine: sa.Engine
) -> None:
    job_id, token = _gang(engine, 2)
    for rank in (0, 1):
        samples = [Sample(tick=t, cpu_ratio=0.5, net_tx_bytes_per_s=1e6) for t in range(10_000)]
        samples[7777] = Sample(tick=7777, cpu_ratio=0.97, net_tx_bytes_per_s=1e6)
        _sample(engine, token, *samples, rank=rank)
    page = _page(client, f"/jobs/{job_id}")
    for key in ("cpu-ratio", "net-tx-bytes"):
        for name, points in _lines(page, key).items():
            assert 1000 < len(points) <= 2000, name
    assert max(value or 0 for _, value in _lines(page, "cpu-ratio")["rank 1"]) == 0.97
    assert "no peak is lost" in _read(page)
    assert len(page) < 600_000
    part = _page(client, f"/jobs/{job_id}?from_s=7770&to_s=7780&ranks=1")
    assert _lines(part, "cpu-ratio") == {
        "rank 1": [(t, 0.97 if t == 7777 else 0.5) for t in range(7770, 7781)]
    }


def test_a_wide_gang_shows_some_ranks_and_any_that_are_asked_for(
    client: FlaskClient, engine: sa.Engine
) -> None:
    job_id, token = _gang(engine, 64)
    for rank in range(64):
        _sample(engine, token, Sample(tick=0, cpu_ratio=rank / 100), rank=rank)
    usual = _page(client, f"/jobs/{job_id}")
    assert list(_lines(usual, "cpu-ratio")) == [f"rank {n}" for n in range(6)]
    assert 'name="ranks" value="0-5"' in usual
    chosen = _page(client, f"/jobs/{job_id}?ranks=0,61-63&from_s=&to_s=")
    assert list(_lines(chosen, "cpu-ratio")) == ["rank 0", "rank 61", "rank 62", "rank 63"]
    assert _part(chosen, "attempt").count('<td data-label="Agent">') == 64


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("ranks=64", "ranks: expected ranks from 0 to 1 with commas"),
        ("ranks=%3Cscript%3E", "ranks: expected"),
        ("from_s=-1", "from_s: expected a whole number"),
        ("from_s=9&to_s=3", "to_s: expected a second not before from_s, 9"),
        ("to_s=1.5", "to_s: expected"),
        ("attempt=0", "attempt: expected"),
        ("rank=1", "rank: expected no parameter but"),
        ("ranks=0&ranks=1", "ranks: expected a parameter given once"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(
    client: FlaskClient, seeded: Seeded, query: str, expected: str
) -> None:
    answer = client.get(f"/jobs/{seeded.measured}?{query}")
    assert answer.status_code == 400
    assert expected in html.unescape(answer.get_data(as_text=True))
    assert client.get(f"/jobs/{seeded.measured}?attempt=2").status_code == 404


def test_a_scaled_learning_rate_stands_beside_the_batch(
    client: FlaskClient, engine: sa.Engine
) -> None:
    axes = {"learning_rate": 0.1, "lr_scaling": "sqrt"}
    specs = [
        factories.job_spec(strategy="torch_ddp", global_batch_size=128, axes=one)
        for one in ({}, axes)
    ]
    with writing(engine) as session:
        usual, scaled = factories.add_sweep(session, *specs)
    assert "at this batch" not in _read(_page(client, f"/jobs/{usual}"))
    assert "learning rate 0.2 at this batch" in _read(_page(client, f"/jobs/{scaled}"))


def test_the_network_asked_for_stands_beside_what_was_measured(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    path = f"/jobs/{seeded.measured}"
    assert "as requested" not in _read(_part(_page(client, path), "network"))
    network = NetworkProfile(one_way_delay_s=0.02, bandwidth_bytes_per_s=1.25e6)
    with writing(engine) as session:
        job = session.get_one(JobRow, seeded.measured)
        job.spec = to_json(factories.job_spec(world_size=2, network=network))  # type: ignore[assignment] # a table
        for rank in session.scalars(sa.select(RankRow).where(RankRow.attempt_id == 1)):
            peer = 1 - rank.rank
            before = PeerRtt(rank=peer, rtt_s=0.001, probe_count=20)
            as_shaped = PeerRtt(rank=peer, rtt_s=0.041 + rank.rank / 1e4, probe_count=20)
            speed = (1.2 + rank.rank / 100) * 1e6
            carried = PeerBandwidth(rank=peer, bytes_per_s=speed, byte_count=1)
            shaped = Shaped(emulator="tc_netem", rtts=(as_shaped,), bandwidths=(carried,))
            rank.peers = to_json(PeersMeasured(rtts=(before,)))  # type: ignore[assignment] # a table
            rank.shaped = to_json(shaped)  # type: ignore[assignment] # a table
        session.execute(
            sa.update(MeasurementRow)
            .where(MeasurementRow.job_id == seeded.measured)
            .values(measured_bandwidth_bytes_per_s=1.2e6, loaded_rtt_s=0.09)
        )
    page = _page(client, path)
    shown = _part(page, "network")
    assert "shaped by tc_netem" in _read(shown)
    rows = rows_of(shown)
    of = {row[0]: row[1:4] for row in rows}  # what was asked for, before, and as shaped
    round_trips = ("40.0 ms more 20.0 ms each way", "1.00 ms rank 0 to 1", "41.1 ms rank 1 to 0")
    assert of["Round trip"] == list(round_trips)
    assert of["Bandwidth"] == ["10.0 Mbit/s", "not measured", "9.60 Mbit/s rank 0 to 1"]
    [of_rank_1] = [row for row in rows if row[:2] == ["rank 1", "rank 0"]]
    assert of_rank_1[2:5] == ["1.00 ms", "41.0 ms", "41.1 ms"]
    assert of_rank_1[-2:] == ["9.68 Mbit/s", "as requested"]
    assert "bandwidth as shaped 9.60 Mbit/s" in _read(page)
    assert "round trip during one stream 90.0 ms" in _read(page)


def test_the_shares_of_a_step_are_a_bar_and_numbers(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    path = f"/jobs/{seeded.measured}"
    assert "Where the time of a step goes" not in _read(_page(client, path))
    with writing(engine) as session:
        session.execute(
            sa.update(MeasurementRow)
            .where(MeasurementRow.job_id == seeded.measured)
            .values(profiled_step_time_s=0.2, compute_s=0.1, communication_s=0.05)
        )
        for rank in session.scalars(sa.select(RankRow).where(RankRow.attempt_id == 1)):
            profile = {
                "step_count": 9,
                "step_time_s": 0.2,
                "compute_s": 0.15 if rank.rank else 0.05,
                "communication_s": 0.05,
            }
            ended = dict(rank.ended or {"failure": None, "log_tail": "", "rtts": []})
            rank.ended = {**ended, "result": {**(ended.get("result") or {}), "profile": profile}}
    shares = _part(_page(client, path), "shares")
    found = {row[0]: [cell for cell in row[1:] if cell] for row in rows_of(shares)}
    assert found["all ranks"] == ["50 % 100 ms", "25 % 50.0 ms", "25 % 50.0 ms", "200 ms"]
    assert found["rank 1"][:2] == ["75 % 150 ms", "25 % 50.0 ms"]
    assert found["rank 1"][2].startswith("0 %")
    assert lacking(_read(shares), "Inside the exchange", "50 % of their agents' cores") == []
    assert shares.count('<div class="bar shares"') == 3
    assert shares.count('<span class="compute w50">') == 1
    [label] = re.findall(r'aria-label="all ranks: ([^"]*)"', shares)
    assert lacking(label, "compute 50 %", "communication 25 %", "idle 25 %") == []


def test_what_is_not_known_is_told_with_its_reason(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    assert 'id="unmeasured"' not in _page(client, f"/jobs/{seeded.measured}")
    reasons = {"tokens_per_s": "its examples are images", "idle_ratio": "nobody profiled it"}
    with writing(engine) as session:
        is_of_job = MeasurementRow.job_id == seeded.measured
        row = session.scalars(sa.select(MeasurementRow).where(is_of_job)).one()
        row.details = {**row.details, "unmeasured": reasons}
    read = _read(_part(_page(client, f"/jobs/{seeded.measured}"), "unmeasured"))
    assert "tokens per s: its examples are images" in read
    assert "idle ratio: nobody profiled it" in read


def test_a_job_is_compared_with_its_neighbours_and_its_repetitions(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    with writing(engine) as session:
        again = factories.add_job(
            session, factories.job_spec(world_size=2, global_batch_size=64, epochs=1, repetition=1)
        )
    page = _page(client, f"/jobs/{seeded.measured}")
    text = _read(_part(page, "compared"))
    # The measured gang took 0.2 s a step, the single machine 0.4 s.
    found = _part(page, "compared").replace("×", "x")  # noqa: RUF001 # as it is typeset
    [neighbour] = [row for row in rows_of(found) if "1 machine, single" in row]
    assert neighbour[0] == "world size"
    assert [cell for cell in neighbour if cell][2:6] == ["400 ms", "2.00 x", "160", "0.50 x"]
    assert f'href="/jobs/{seeded.single}"' in _part(page, "compared")
    assert f"job {again} 1 of sweep" in text
    assert "this one" in text


def test_the_story_tells_every_change_and_who_asked(engine: sa.Engine, seeded: Seeded) -> None:
    token = make_api_token(engine, "ci")
    client = without_limits(client_of(engine))
    sign_in(client, token)
    form = {"csrf_token": csrf_of(client)}
    assert client.post(f"/jobs/{seeded.waiting}/cancel", data=form).status_code == 303
    assert client.post(f"/jobs/{seeded.failed}/retry", data=form).status_code == 303
    story = _read(_part(_page(client, f"/jobs/{seeded.waiting}"), "story"))
    assert "cancelled the job was cancelled" in story
    assert "on request of token 'ci'" in story
    failed = _part(_page(client, f"/jobs/{seeded.failed}"), "story")
    assert "Attempt 1 failed" in _read(failed)
    assert "failed the job failed" in _read(failed)
    assert "retried on request of token 'ci'" in _read(failed)
    assert '<details id="story-1"' in failed


def test_all_of_a_running_job_is_live_part_by_part(client: FlaskClient, engine: sa.Engine) -> None:
    job_id, token = _gang(engine, 2)
    waits = _page(client, f"/jobs/{job_id}")
    assert re.search(r'<div class="plots" id="rank-charts" data-live-list>\s*</div>', waits)
    _sample(engine, token, Sample(tick=0, cpu_ratio=0.5))
    page = _page(client_of(engine), f"/jobs/{job_id}")
    for name in ("state", "plot-cpu-ratio", "step-numbers", "story", "measured", "network"):
        assert re.search(rf'id="{name}"[^>]* data-live', page), name
    # A live part must not hold another: the inner one could never be kept.
    assert re.search(r'id="rank-charts" data-live-list>\s*<div id="slot-cpu-ratio">', page)
    assert "slot-swap-bytes" not in page
    assert "data-events=" in page
    assert "data-busy" in page


def test_nothing_is_live_once_all_is_told(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    page = _page(client, f"/jobs/{seeded.single}")
    for name in ("data-live", "data-busy", "data-events", "http-equiv"):
        assert name not in page.split('id="logs"')[0], name
    # For a moment after the end the last reports of its ranks still come.
    with writing(engine) as session:
        attempt = session.scalars(
            sa.select(AttemptRow).where(AttemptRow.job_id == seeded.single)
        ).one()
        attempt.ended_at = dt.datetime.now(dt.UTC)
    assert "data-events" in _page(client, f"/jobs/{seeded.single}")


def test_a_job_that_waits_has_a_page_too(client: FlaskClient, seeded: Seeded) -> None:
    page = _page(client, f"/jobs/{seeded.waiting}")
    assert re.search(r'<div id="attempt-parts" data-live></div>', page)
    assert "Waiting:" in _read(page)
    assert "submitted" in _read(_part(page, "story"))


def test_a_job_retried_for_ever_has_a_bounded_story(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        job_id = factories.add_job(session, state=JobState.CANCELLED)
        session.add_all(
            JobEvent(job_id=job_id, at=factories.NOW, event="job: waiting", reason=f"number {n}")
            for n in range(600)
        )
    story = _read(_part(_page(client, f"/jobs/{job_id}"), "story"))
    assert "Only the latest events" in story
    assert "number 599" in story
    assert "number 100 " in story
    assert "number 99 " not in story


def test_a_page_of_charts_needs_nothing_that_its_policy_forbids(
    client: FlaskClient, seeded: Seeded
) -> None:
    page = _page(client, f"/jobs/{seeded.measured}")
    assert EVIL not in page
    assert "style=" not in page
    assert not re.search(r'<script(?! src="/static/| type="application/json">)', page)
    assert not re.search(r"<[^>]* on[a-z]+=", page)
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    # Each table and each scrolling region has a name.
    assert page.count("<table") == page.count("<caption")


def test_the_api_gives_the_longest_step_of_each_point(
    client: FlaskClient, engine: sa.Engine
) -> None:
    job_id, token = _gang(engine, 2)
    with writing(engine) as session:
        for first in range(0, 8000, 4):
            times_s = (0.1, 0.1, 9.0 if first == 400 else 0.1, 0.1)
            chunk = StepTimes(
                kind=StepKind.TIMED, first_step=first, begun_s=first / 10, times_s=times_s
            )
            insert_steps(session, token=token, rank=0, steps=chunk)
    series = client.get(f"/api/v1/jobs/{job_id}/series").json
    assert series is not None
    assert len(series["steps"]) <= 2000
    assert sum(point["step_count"] for point in series["steps"]) == 8000
    assert max(point["longest_s"] for point in series["steps"]) == 9.0
