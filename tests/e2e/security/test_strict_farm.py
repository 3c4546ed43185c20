"""A farm in its strictest setting, on real servers: it works, and no attack on it succeeds."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterator

import pytest

from farm.gang.lifecycle import JobState
from tests.attacks import ATTACKS
from tests.attacks.contract import Attack, shown
from tests.e2e.live_farm import REPOSITORY
from tests.e2e.security.strict_farm import StrictFarm, strict_farm, what_lacks

# The first test starts everything.
pytestmark = pytest.mark.timeout(900)
DEMO = REPOSITORY / "farm" / "cli" / "demo.toml"


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StrictFarm]:
    if (lack := what_lacks()) is not None:
        pytest.skip(f"this machine cannot: {lack}")
    with strict_farm(tmp_path_factory.mktemp("strict")) as farm:
        yield farm


def test_the_strictest_farm_runs_the_demos_sweep(farm: StrictFarm) -> None:
    request = urllib.request.Request(
        f"{farm.web_url}/api/v1/sweeps",
        data=DEMO.read_bytes(),
        headers={
            "Authorization": f"Bearer {farm.tokens['submit']}",
            "Content-Type": "application/toml",
        },
    )
    trusting = ssl.create_default_context(cafile=str(farm.authority.file))
    with urllib.request.urlopen(request, timeout=30, context=trusting) as answer:
        assert answer.status == 201
        sweep_id = json.load(answer)["id"]
    jobs = farm.wait_for_end(sweep_id, within_s=360)
    assert len(jobs) == 8
    assert {job.state for job in jobs} == {JobState.SUCCEEDED}, farm.story(sweep_id)
    assert all(farm.measurement_count(job.id) == 1 for job in jobs)
    # Nobody lacked a right, and nobody asked for more than he has.
    with farm.broker.client() as admin:
        assert {entry["object"] for entry in admin.acl_log()} <= {"client|setinfo"}
    written = "".join(log.read_text() for log in (farm.home / "logs").glob("*.log"))
    assert "NOPERM" not in written
    for secrets in farm.secrets.values():
        assert secrets.key not in written
        assert "CHANGE-ME" not in written


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.tried)
def test_an_attack_is_refused(farm: StrictFarm, attack: Attack) -> None:
    assert shown(attack.act(farm), farm)


def test_after_all_of_them_it_works_as_before(farm: StrictFarm) -> None:
    assert all(process.poll() is None for process in farm.processes.values())
    [job] = farm.wait_for_end(farm.submit(steps=30), within_s=360)
    assert job.state is JobState.SUCCEEDED, farm.story(job.sweep_id)
