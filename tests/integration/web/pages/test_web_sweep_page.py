"""The page of a sweep on a real store: its cells, its map and charts, and how it is steered."""

from __future__ import annotations

import datetime as dt
import html
import re

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.configuration.spec import JobSpec, NetworkProfile
from farm.gang.lifecycle import AttemptState, JobState
from farm.keys.api_tokens import Scope
from farm.measuring.quantities import QUANTITIES
from farm.store.engine import reading, writing
from farm.store.result_tables import MeasurementRow
from farm.store.sweeps.sweeps import insert_sweep
from farm.store.tables import AttemptRow, JobRow, SweepRow
from tests import factories
from tests.facts import lacking
from tests.web.web_client import (
    client_of,
    csrf_of,
    make_api_token,
    seed,
    sign_in,
    without_limits,
)
from tests.web.web_reading import rows_of

PRICED = "Standard_D2s_v3"


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


def add_measured(engine: sa.Engine, *specs: JobSpec, name: str = "measured", **times: float) -> int:
    """Add a finished sweep: a step takes 0.1 s for 64 examples on one machine, half on two."""
    with writing(engine) as session:
        sweep_id = insert_sweep(
            session,
            name=name,
            spec={"name": name},
            jobs=specs,
            skipped=[],
            priority=0,
            now=factories.NOW,
        )
        jobs = session.scalars(
            sa.select(JobRow).where(JobRow.sweep_id == sweep_id).order_by(JobRow.id)
        )
        for job, spec in zip(jobs, specs, strict=True):
            token = factories.add_attempt(session, job.id, state=AttemptState.SUCCEEDED)
            attempt = session.get_one(AttemptRow, token)
            attempt.ended_at = attempt.leased_at + factories.seconds(60)
            delay_s = spec.network.one_way_delay_s if spec.network else 0.0
            factor = times.get("factor", 1.0) * (1 + 0.01 * (spec.repetition % 3))
            step_s = (0.1 * spec.global_batch_size / 64 / spec.world_size + delay_s) * factor
            factories.add_measurement(
                session,
                f"job {job.id}",
                job_id=job.id,
                strategy=spec.strategy,
                world_size=spec.world_size,
                global_batch_size=spec.global_batch_size,
                one_way_delay_s=delay_s,
                repetition=spec.repetition,
                step_time_s=step_s,
                time_per_epoch_s=100 * step_s,
                throughput_examples_per_s=spec.global_batch_size / step_s,
                instance_type=PRICED,
                fingerprint="a kind",
            )
    return sweep_id


def grid(*, repetitions: int = 3, delays_s: tuple[float, ...] = (0.0,)) -> list[JobSpec]:
    """One, two and four machines, two batch sizes; gangs at each of the delays."""
    return [
        factories.job_spec(
            world_size=n,
            global_batch_size=batch,
            repetition=r,
            seed=r,
            network=NetworkProfile(one_way_delay_s=d) if n > 1 and d else None,
        )
        for batch in (64, 128)
        for n in (1, 2, 4)
        for d in (delays_s if n > 1 else (0.0,))
        for r in range(repetitions)
    ]


def page_of(client: FlaskClient, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.get_data(as_text=True)[:400]
    return answer.get_data(as_text=True)


def text_of(page: str) -> str:
    """Return what is read of a page: without tags and data of scripts, spaces folded."""
    page = re.sub(r"<script.*?</script>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def _part(page: str, begin: str, end: str) -> str:
    return page.split(begin, 1)[1].split(end, 1)[0]


def test_a_cell_tells_time_throughput_epoch_efficiency_and_cost(
    client: FlaskClient, engine: sa.Engine
) -> None:
    sweep_id = add_measured(engine, *grid())
    cells = text_of(_part(page_of(client, f"/sweeps/{sweep_id}"), 'id="cells"', 'id="results"'))
    row = re.search(r"64 mwms_ring 2 (.*? USD)", cells)
    assert row is not None
    assert row[1].startswith("50.5 ms ± ")
    assert "100 % 5.05 s" in row[1]  # an epoch of 100 steps
    assert row[1].endswith("USD")
    assert "Machine time:" in cells


def test_a_cell_on_two_kinds_of_hardware_has_a_line_for_each(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        specs = [factories.job_spec(repetition=n, seed=n) for n in range(3)]
        job_ids = factories.add_sweep(session, *specs)
        for job_id, kind, cpu_ratio in zip(job_ids, "bba", (None, None, 0.5), strict=True):
            session.get_one(JobRow, job_id).state = JobState.SUCCEEDED
            key = f"job {job_id}"
            factories.add_measurement(
                session, key, job_id=job_id, fingerprint=kind * 64, cpu_ratio=cpu_ratio
            )
    cells = _part(page_of(client, "/sweeps/1"), 'id="cells"', 'id="results"')
    text = text_of(cells)
    assert "hardware bbbbbbbb" in text
    assert "hardware aaaaaaaa" in text
    assert "50 %" in text  # of the second kind alone
    for job_id in (job_ids[0], job_ids[2]):
        assert cells.count(f'id="cell-{job_id}"') == 1


def test_the_api_has_the_medians_that_the_page_shows(
    client: FlaskClient, engine: sa.Engine
) -> None:
    sweep_id = add_measured(engine, *grid())
    cells = client.get(f"/api/v1/sweeps/{sweep_id}").get_json()["cells"]
    assert len(cells) == 6
    for cell in cells:
        quantities, batch = cell["quantities"], cell["configuration"]["global_batch_size"]
        assert set(quantities) == {quantity.name for quantity in QUANTITIES}
        assert quantities["step_time_s"] == cell["step_time_s"]
        assert quantities["throughput_examples_per_s"] == pytest.approx(
            batch / quantities["step_time_s"]
        )


def test_cells_are_put_in_order_by_the_columns(client: FlaskClient, engine: sa.Engine) -> None:
    sweep_id = add_measured(engine, *grid())

    def sizes(query: str) -> list[str]:
        page = page_of(client, f"/sweeps/{sweep_id}?{query}")
        rows = _part(page, 'id="cells"', 'id="results"')
        return re.findall(r'data-label="World size" class="n">(\d+)', rows)

    assert sizes("") == ["1", "2", "4", "1", "2", "4"]
    assert sizes("sort=step_time") == ["4", "2", "4", "1", "2", "1"]
    assert sizes("sort=-world_size")[:2] == ["4", "4"]
    page = page_of(client, f"/sweeps/{sweep_id}?sort=step_time")
    assert 'aria-sort="ascending"' in page
    assert "sort=-step_time" in page  # the second look turns it round
    assert client.get(f"/sweeps/{sweep_id}?sort=colour").status_code == 400


def test_the_map_has_a_number_for_each_cell_and_follows_the_choice(
    client: FlaskClient, engine: sa.Engine
) -> None:
    sweep_id = add_measured(engine, *grid(delays_s=(0.0, 0.02)))
    path = f"/sweeps/{sweep_id}"
    page = page_of(client, path)
    head, first, _ = rows_of(_part(page, 'id="map-as-table"', "</details>"))
    assert head[1:] == ["World size 1", "World size 2", "World size 4"]
    assert first == ["64", "101 ms", "50.5 ms", "25.2 ms"]
    query = "metric=efficiency&x=one_way_delay_ms&y=world_size&at_global_batch_size=64"
    page = page_of(client, f"{path}?{query}")
    table = _part(page, 'id="map-as-table"', "</details>")
    assert lacking(text_of(table), "Scaling efficiency over delay and world size") == []
    assert rows_of(table)[1:3] == [["1", "100 %", "100 %"], ["2", "100 %", "71 %"]]
    assert '<option value="64" selected>64</option>' in page
    # Links keep the choice.
    assert "at_global_batch_size=64" in _part(page, 'id="sort-step_time"', ">")


def test_parameters_of_a_script_are_compared_like_other_axes(
    client: FlaskClient, engine: sa.Engine
) -> None:
    specs = [
        factories.job_spec(
            model=f"script:train.py {{hidden}}={hidden} {{lr}}={lr} -- {{hidden}} {{lr}}",
            strategy="torch_script",
            global_batch_size=hidden,
        )
        for hidden in (256, 1024)
        for lr in ("small", "large")
    ]
    sweep_id = add_measured(engine, *specs)
    page = page_of(client, f"/sweeps/{sweep_id}?x=parameter.lr&y=parameter.hidden")
    assert rows_of(_part(page, 'id="map-as-table"', "</details>")) == [
        ["hidden", "lr large", "lr small"],
        ["256", "400 ms", "400 ms"],
        ["1024", "1.60 s", "1.60 s"],
    ]
    assert "lr small" in text_of(page)
    chart = page_of(
        client, f"/sweeps/{sweep_id}?along=parameter.hidden&at_parameter.lr=small&metric=step_time"
    )
    assert '<option value="parameter.hidden" selected>' in chart
    for query in ("at_parameter.lr=huge", "at_parameter.depth=3", "x=parameter.depth"):
        refused = client.get(f"/sweeps/{sweep_id}?{query}")
        assert refused.status_code == 400, query


def test_the_map_says_of_each_cell_how_it_stands(client: FlaskClient, engine: sa.Engine) -> None:
    specs = [
        factories.job_spec(world_size=n, global_batch_size=batch, epochs=epochs)
        for batch, epochs in ((2, 30), (64, 100))
        for n in ((1, 2) if batch < 4 else (1, 2, 4))
    ]
    sweep_id = add_measured(engine, *specs)
    with writing(engine) as session:
        sweep = session.get_one(SweepRow, sweep_id)
        sweep.skipped = [
            "case[0]: model=mlp dataset=digits strategy=mwms_ring world_size=4 "
            "global_batch_size=2: global_batch_size: expected at least 4, got 2"
        ]
        rows = session.scalars(sa.select(MeasurementRow).order_by(MeasurementRow.job_id)).all()
        rows[3].flags = [{"kind": "foreign_load", "message": "other programs took 54 %"}]
        running = session.get_one(JobRow, rows[4].job_id)
        session.delete(rows[4])
        factories.add_attempt(session, running.id, state=AttemptState.RUNNING, number=2)
    page = page_of(client, f"/sweeps/{sweep_id}")
    assert rows_of(_part(page, 'id="map-as-table"', "</details>"))[1:] == [
        ["2", "3.12 ms", "1.56 ms", "impossible"],
        ["64", "100 ms", "50.0 ms !", "running"],
    ]
    text = text_of(_part(page, 'id="map-more"', "<details"))
    assert lacking(text, "Length differs", "Impossible:", "! after a number") == []
    assert "not in this sweep" not in page
    cells = text_of(_part(page, 'id="cells"', 'id="results"'))
    assert "1 of 1 disturbed" in cells


def test_a_sweep_says_why_its_jobs_wait(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        factories.add_agent(session, heartbeat_at=dt.datetime.now(dt.UTC))
        wide = [factories.job_spec(world_size=2, seed=seed) for seed in range(2)]
        first, *_ = factories.add_sweep(session, *wide)
        factories.add_sweep(session, factories.job_spec(world_size=3))
        sweep_id = session.get_one(JobRow, first).sweep_id
    text = text_of(_part(page_of(client, f"/sweeps/{sweep_id}"), 'id="progress"', "</section>"))
    assert "2 jobs wait: needs 2 agents; the farm has 1" in text
    assert "3 agents" not in text


def test_a_recommendation_says_how_much_of_its_evidence_is_of_other_sweeps(
    client: FlaskClient, engine: sa.Engine
) -> None:
    sweep_id = add_measured(engine, *grid(), name="one")

    def advice() -> tuple[str, list[tuple[int, int]]]:
        page = page_of(client, f"/sweeps/{sweep_id}")
        found = client.get(f"/api/v1/sweeps/{sweep_id}").json
        assert found is not None
        counts = [
            (one["own_measurement_count"], one["other_measurement_count"])
            for one in found["recommended"]
        ]
        assert [one["recommended"]["world_size"] for one in found["recommended"]] == [4, 4]
        return text_of(_part(page, 'id="advice"', "</section>")), counts

    text, counts = advice()
    assert text.count("Rests on 3 measurements, all of this sweep.") == 2
    assert "including other sweeps" in text
    assert counts == [(3, 0)] * 2
    add_measured(engine, *grid(repetitions=2), name="another")
    text, counts = advice()
    rests = re.findall(r"[Rr]ests on (\d+) measurements: (\d+) of this sweep", text)
    assert set(rests) == {("5", "3")}
    assert text.count("2 of other sweeps.") >= 2
    assert counts == [(3, 2)] * 2
    only_one = [spec for spec in grid() if spec.world_size == 1]
    sweep_id = add_measured(engine, *only_one, name="of one machine")
    text, counts = advice()
    assert len(re.findall(r"Rests on 5 measurements of other sweeps[^.]* none of this", text)) == 2
    assert counts == [(0, 5)] * 2
    link = html.unescape(
        _part(page_of(client, f"/sweeps/{sweep_id}"), 'id="all-options-1" href="', '"')
    )
    workload = "model=mlp&dataset=digits&pass=forward_backward&global_batch_size=64"
    assert link == f"/advice?origin=farm&{workload}"
    assert client.get(link).status_code == 200


def test_charts_have_lines_bars_and_say_what_they_show(
    client: FlaskClient, engine: sa.Engine
) -> None:
    sweep_id = add_measured(engine, *grid())
    page = page_of(client, f"/sweeps/{sweep_id}")
    for title in (
        "Step time against world size",
        "Scaling efficiency against world size",
        "Cost of an epoch against world size",
        "Time of an epoch against its cost",
    ):
        assert f"<figcaption>{title}</figcaption>" in page
    time = _part(page, 'id="plot-time"', "</table>")
    assert time.count("<tr>") == 1 + 6
    along = page_of(client, f"/sweeps/{sweep_id}?along=global_batch_size")
    assert "Step time against batch" in along
    answer = client.get(f"/sweeps/{sweep_id}?along=strategy")
    assert answer.status_code == 400


def test_pages_with_charts_hold_to_the_policy(client: FlaskClient, engine: sa.Engine) -> None:
    sweep_id = add_measured(engine, *grid(), name="<script>alert(1)</script>")
    answer = client.get(f"/sweeps/{sweep_id}")
    page = answer.get_data(as_text=True)
    assert "<script>" not in page
    assert not re.search(r"<script(?! src=\"/static/| type=\"application/json\")", page)
    assert "style=" not in page
    assert "<style" not in page
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert "unsafe" not in answer.headers["Content-Security-Policy"]


def test_failed_cells_are_told_with_their_reason_and_can_be_shown_alone(
    client: FlaskClient, engine: sa.Engine
) -> None:
    seeded = seed(engine)
    page = page_of(client, f"/sweeps/{seeded.sweep_id}?show=failed")
    cells = _part(page, 'id="cells"', 'id="results"')
    assert cells.count('data-label="Batch"') == 1
    assert "out of memory: the kernel killed rank 0" in text_of(cells)
    assert f'href="/jobs/{seeded.failed}"' in cells
    everything = page_of(client, f"/sweeps/{seeded.sweep_id}")
    assert "Only the 1 of which something failed" in text_of(everything)
    field = text_of(_part(everything, 'id="map-as-table"', "</details>"))
    assert "running" in field


def test_a_repetition_that_failed_is_told_beside_those_that_did_not(
    client: FlaskClient, engine: sa.Engine
) -> None:
    sweep_id = add_measured(engine, *(factories.job_spec(repetition=n, seed=n) for n in range(3)))
    with writing(engine) as session:
        job = session.scalars(sa.select(JobRow).order_by(JobRow.id.desc())).first()
        assert job is not None
        job.state, job.failure_kind, job.reason = JobState.FAILED, "crashed", "its trainer raised"
    cells = text_of(page_of(client, f"/sweeps/{sweep_id}"))
    assert lacking(cells, "1 of 3 repetitions failed", "crashed: its trainer raised") == []


def test_a_sweep_is_paused_and_resumed(client: FlaskClient, engine: sa.Engine) -> None:
    seeded = seed(engine)
    path = f"/sweeps/{seeded.sweep_id}"
    form = {"csrf_token": csrf_of(client, path)}
    assert 'id="pause"' in page_of(client, path)
    assert client.post(f"{path}/pause", data=form).status_code == 303
    with reading(engine) as session:
        assert session.get_one(SweepRow, seeded.sweep_id).is_paused
    page = page_of(client, path)
    assert 'id="resume"' in page
    assert 'id="pause"' not in page
    assert "Paused: no further job is started" in text_of(page)
    assert client.post(f"{path}/resume", data=form).status_code == 303
    with reading(engine) as session:
        assert not session.get_one(SweepRow, seeded.sweep_id).is_paused
    assert client.post("/sweeps/4711/pause", data=form).status_code == 404


def test_a_sweep_over_its_budget_asks_for_another(client: FlaskClient, engine: sa.Engine) -> None:
    seeded = seed(engine)
    path = f"/sweeps/{seeded.sweep_id}"
    with writing(engine) as session:
        sweep = session.get_one(SweepRow, seeded.sweep_id)
        sweep.budget_machine_s, sweep.budget_used_up_at = 1.8, factories.NOW
    page = page_of(client, path)
    words = ("over budget", "Budget: 0.0005 machine hours", "its sweep's budget of 0.0005")
    assert lacking(text_of(page), *words) == []
    assert 'name="budget_machine_hours"' in page
    form = {"csrf_token": csrf_of(client, path)}
    for wrong, status in ((None, 409), ("", 422), ("much", 422), ("0.0001", 409)):
        sent = form if wrong is None else {**form, "budget_machine_hours": wrong}
        assert client.post(f"{path}/resume", data=sent).status_code == status, wrong
    sent = {**form, "budget_machine_hours": "1000000"}
    assert client.post(f"{path}/resume", data=sent).status_code == 303
    page = page_of(client, path)
    assert 'id="pause"' in page
    assert "Budget: 1\u202f000\u202f000 machine hours" in page


def test_who_may_only_read_has_no_buttons(engine: sa.Engine) -> None:
    seeded = seed(engine)
    client = without_limits(client_of(engine))
    sign_in(client, make_api_token(engine, scope=Scope.READ))
    path = f"/sweeps/{seeded.sweep_id}"
    page = page_of(client, path)
    assert 'id="pause"' not in page
    assert 'id="cancel"' not in page
    form = {"csrf_token": csrf_of(client, path)}
    for change in ("pause", "resume", "cancel", "retry"):
        assert client.post(f"{path}/{change}", data=form).status_code == 403


def test_what_changes_is_seen_at_the_next_look(client: FlaskClient, engine: sa.Engine) -> None:
    seeded = seed(engine)
    path = f"/sweeps/{seeded.sweep_id}"
    assert "running" in text_of(_part(page_of(client, path), 'id="cells"', 'id="results"'))
    with writing(engine) as session:
        job = session.get_one(JobRow, seeded.running)
        job.state, job.attempt_id, job.finished_at = JobState.SUCCEEDED, None, factories.NOW
        factories.add_measurement(
            session, "new", job_id=job.id, global_batch_size=32, step_time_s=0.077
        )
    cells = text_of(_part(page_of(client, path), 'id="cells"', 'id="results"'))
    assert "77.0 ms" in cells
    assert "running" not in cells


def test_a_sweep_of_many_cells_comes_in_pages(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        factories.add_sweep(
            session, *(factories.job_spec(global_batch_size=n) for n in range(1, 126))
        )
    seen: list[str] = []
    for number in (1, 2, 3):
        page = page_of(client, f"/sweeps/1?cells={number}")
        rows = _part(page, 'id="cells"', 'id="results"')
        seen += re.findall(r'data-label="Batch" class="n">(\d+)', rows)
    assert [int(n) for n in seen] == list(range(1, 126))
    assert "page 3 of 3, 125 cells" in text_of(page)


def test_a_sweep_of_one_cell_has_no_map(client: FlaskClient, engine: sa.Engine) -> None:
    sweep_id = add_measured(engine, factories.job_spec())
    page = page_of(client, f"/sweeps/{sweep_id}")
    assert "chart heat" not in page
    assert 'id="pictures"' not in page


def test_a_sweep_without_jobs_is_a_page(client: FlaskClient, engine: sa.Engine) -> None:
    sweep_id = add_measured(engine)
    assert "0 of 0 done" in text_of(page_of(client, f"/sweeps/{sweep_id}"))


@pytest.mark.parametrize(
    "query",
    [
        *("x=world_size&x=strategy", "colour=red", "metric=x", "at_world_size=3", "cells=0"),
        *("y=%27%20OR%201=1", "at_strategy=%00", "page=1e9", "along=%3Cscript%3E"),
    ],
)
def test_what_a_page_cannot_show_is_refused_by_name(
    client: FlaskClient, engine: sa.Engine, query: str
) -> None:
    sweep_id = add_measured(engine, *grid(repetitions=1))
    answer = client.get(f"/sweeps/{sweep_id}?{query}")
    assert answer.status_code == 400
    assert "<script>" not in answer.get_data(as_text=True)


def test_a_recommendation_from_undisturbed_repetitions_is_green(
    client: FlaskClient, engine: sa.Engine
) -> None:
    sweep_id = add_measured(engine, *grid())
    page = page_of(client, f"/sweeps/{sweep_id}")
    assert page.count('<div class="answer ">') == 2
    assert lacking(text_of(page), "the best of all", "over 99 %") == []


def test_a_recommendation_from_disturbed_measurements_says_so_first(
    client: FlaskClient, engine: sa.Engine
) -> None:
    sweep_id = add_measured(engine, *grid())
    flag = {"kind": "foreign_load", "message": "a1, rank 0: 60 % of its cores", "value": 0.6}
    with writing(engine) as session:
        session.execute(sa.update(MeasurementRow).values(flags=[flag]))
    page = page_of(client, f"/sweeps/{sweep_id}")
    assert page.count('<div class="answer open">') == 2
    assert page.count("3 of 3 disturbed</span>") == 6
    assert "3 repetitions, 3 disturbed" in page  # of the marks of charts
    assert '<tr class="best' not in page
    answers = page.split('<div class="answer open">')[1:]
    for answer in answers:
        first = text_of(answer.partition("4 machines")[0])
        assert lacking(first, "disturbed", "3 of 3", "other programs (3)") == []
