"""The report of a sweep bundle in a real browser: from disk and without a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from farm.gang.lifecycle import AttemptState
from farm.recommend.prices import Prices
from farm.store.engine import make_engine, reading, writing
from farm.store.schema import upgrade
from farm.sweep_bundle.writing import write_bundle
from tests.e2e.browser.browser import NEEDS_CHROMIUM, browser, check, page_of
from tests.factories import add_agent, add_attempt, add_measurement, add_sweep, job_spec

pytestmark = NEEDS_CHROMIUM
HOSTILE = "<img src=x onerror='document.title=1'><script>document.title=1</script>"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    engine = make_engine(f"sqlite:///{tmp_path / 'farm.db'}")
    upgrade(engine)
    specs = [job_spec(world_size=n) for n in (1, 2, 4)]
    with writing(engine) as session:
        add_agent(session, HOSTILE)
        for job_id, spec in zip(add_sweep(session, *specs, name=HOSTILE), specs, strict=True):
            token = add_attempt(session, job_id, [HOSTILE], state=AttemptState.SUCCEEDED)
            add_measurement(
                session,
                f"job {job_id}",
                job_id=job_id,
                attempt_id=token,
                strategy=spec.strategy,
                world_size=spec.world_size,
                step_time_s=0.2 / spec.world_size,
                time_per_epoch_s=9.0 / spec.world_size,
                flags=[{"kind": "steal", "message": HOSTILE, "value": 0.3}],
            )
    with reading(engine) as session:
        write_bundle(session, 1, tmp_path / "bundle", prices=Prices())
    engine.dispose()
    return tmp_path / "bundle" / "report.html"


@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_a_report_opens_from_disk_without_a_network(report: Path, device: str) -> None:
    requested: list[str] = []
    with browser() as started, page_of(started, device=device) as page:
        page.context.set_offline(True)
        page.on("request", lambda request: requested.append(request.url))
        page.goto(report.as_uri())
        check(page)
        drawn = page.evaluate("[...document.images].map(one => one.complete && one.naturalWidth)")
        assert len(drawn) == len(list(report.parent.glob("figures/*.svg"))) > 0
        assert all(width > 0 for width in drawn)
        assert page.title() == f"Sweep {HOSTILE} - Benchfarm"
        assert page.locator("h1").inner_text() == f"Sweep {HOSTILE}"
        assert page.get_by_text("Recommended for mlp on digits, batch 32: ").is_visible()
        assert page.locator("script").count() == 0
    elsewhere = [url for url in requested if not url.startswith(("file:", "data:"))]
    assert elsewhere == []
