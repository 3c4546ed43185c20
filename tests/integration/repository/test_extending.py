"""The examples of docs/extending.md and docs/models.md do what the documents say."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from farm.configuration.catalogue import ModelFacts
from farm.configuration.spec import JobSpec, NetworkProfile
from farm.errors import EmulationFailed
from farm.messages.commands import RankAddress
from farm.messages.trainer_lines import GoLine
from farm.recommend.configuration import Configuration, Observation
from farm.registry import dataset, model
from farm.store.engine import writing
from farm.trainers.contracts import Seat
from farm.trainers.models.model_file import ModelFile
from tests.factories import add_job
from tests.web_client import web_settings
from web.app import create_app
from web.pages import PAGES
from worker_agent.metrics.contracts import Watched
from worker_agent.network.emulators.site import Site

DOCS = Path(__file__).parents[3] / "docs"
JOB = JobSpec(
    model="mlp", dataset="digits", strategy="single", world_size=1, global_batch_size=64, steps=1
)


def example(document: str, title: str) -> str:
    """The Python under a heading."""
    text = (DOCS / document).read_text()
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"^( *)```python\n(.*?)^ *```", section, re.MULTILINE | re.DOTALL)
    return textwrap.dedent(block[1])


@pytest.fixture
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The example of a heading, as the module that it would be."""
    file = tmp_path / "written_example.py"
    file.write_text(example("extending.md", request.param))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("written", ["A metric"], indirect=True)
def test_a_metric_is_read(written: Any) -> None:
    group = written.create(Watched(cpus=(0,), interface="lo", pids=()))

    assert group.read(0)["machine_runnable_count"] >= 1


@pytest.mark.parametrize("written", ["An emulator"], indirect=True)
def test_an_emulator_applies_checks_and_undoes(
    written: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator = written.SiteProgram(Site(state_dir="", interface="lo", cpus=(), spared_ports=()))
    peers = (RankAddress(rank=1, host="10.0.0.2", probe_port=1, trainer_ports=(2,)),)
    assert emulator.probe() == "there is no program benchfarm-link"
    program = tmp_path / "benchfarm-link"
    program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path / "calls"}\ntest "$1" != check\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    assert emulator.probe() is None
    assert emulator.serves(NetworkProfile(one_way_delay_s=0.02))
    assert not emulator.serves(NetworkProfile(one_way_delay_s=0.02, packet_loss_ratio=0.1))
    assert emulator.apply(NetworkProfile(one_way_delay_s=0.02), peers) == peers
    with pytest.raises(EmulationFailed, match="benchfarm-link check"):
        emulator.check()
    emulator.clear()
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["set 0.02 10.0.0.2", "check", "clear"]


@pytest.mark.parametrize("written", ["A predictor"], indirect=True)
def test_a_predictor_knows_what_was_measured_and_says_what_it_does_not(written: Any) -> None:
    two, four = (Configuration(world_size=n, global_batch_size=64) for n in (2, 4))
    seen = [
        Observation(measurement_id=i, configuration=two, step_time_s=time_s)
        for i, time_s in enumerate((0.1, 0.3, 0.2))
    ]
    known, unknown = written.SameWidth().fit(seen).predict([two, four])

    assert (known.step_time_s, known.unknown_because) == (0.2, None)
    assert unknown.step_time_s is None
    assert "with 4 and 64" in unknown.unknown_because


@pytest.mark.parametrize("database_kind", ["sqlite"])
@pytest.mark.parametrize("written", ["A page"], indirect=True)
def test_a_page_shows_the_store(
    written: Any, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(engine) as session:
        add_job(session)
    monkeypatch.setattr("web.app.PAGES", (*PAGES, written.bp))
    answer = create_app(web_settings(), engine=engine).test_client().get("/counts")

    assert answer.status_code == 200
    assert "<li>waiting: 1</li>" in answer.text


PAUSE = """Axis(
    name="pause_ms",
    field="pause_s",
    kind=AxisKind.SETUP,
    type=Amount(unit="ms", noun="number of milliseconds", per_base=1000, low=0, high=1000),
    title="Pause",
    meaning="between two steps",
    default=0.001,
    usual=0.001,
)"""


@pytest.mark.parametrize(
    ("name", "declaration"),
    [("accumulated_steps", example("extending.md", "An axis")), ("pause_ms", PAUSE)],
)
def test_one_declaration_of_an_axis_puts_it_everywhere(
    name: str, declaration: str, tmp_path: Path
) -> None:
    found = _found_in_a_copy(
        tmp_path, "farm/configuration/axes.py", "PROFILE_AXES", declaration, name
    )
    assert found == {
        *("sweep file", "refusal", "API document", "form", "POST /api/v1/sweeps", "job"),
        *("measurement", "command's table", "export", "import", "heat map", "charts"),
        *("comparison", "candidates", "page's table", "guide"),
    }


def test_one_declaration_of_a_quantity_puts_it_everywhere(tmp_path: Path) -> None:
    declaration = example("extending.md", "A quantity")
    found = _found_in_a_copy(
        tmp_path, "farm/measuring/quantities.py", "BY_NAME", declaration, "machine_runnable_count"
    )
    assert found == {
        *("measurement", "export", "import", "command's table", "command's JSON", "heat map"),
        *("charts", "page's table of cells", "page's table of jobs", "choice of a metric"),
        *("job's page", "API", "documents"),
    }


def _found_in_a_copy(folder: Path, file: str, after: str, declaration: str, name: str) -> set[str]:
    """Add a declaration to the end of a list in a copy of the tree; return where it was found.

    `after`: what comes after the list.
    """
    for package in ("farm", "web", "worker_agent", "benchfarm", "tests", "benchmarks"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(DOCS.parent / package, folder / package, ignore=ignored)
    declarations = folder / file
    before, end, rest = declarations.read_text().partition(f"\n)\n{after}")
    declarations.write_text(f"{before}\n{declaration},{end}{rest}")
    program = "tests.added_axis" if file.endswith("axes.py") else "tests.added_quantity"
    done = subprocess.run(
        [sys.executable, "-P", "-m", program, name],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return set(done.stdout.splitlines())


@pytest.mark.tensorflow
@pytest.mark.parametrize("written", ["A strategy"], indirect=True)
def test_a_strategy_and_a_model_of_ones_own_train(written: Any) -> None:
    import numpy as np

    strategy = written.SingleCpu()
    source = example("models.md", "A model of your own").encode()
    own = ModelFile(facts=ModelFacts(name="file:mine.py", summary="of the document"), source=source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what libraries say while they are imported
        strategy.prepare(JOB, 1)
        for trained in (own, model("mlp")):
            digits = dataset("digits")
            engine = strategy.build(
                Seat(
                    job=JOB,
                    rank=0,
                    role="worker",
                    go=GoLine(cluster={"worker": ("127.0.0.1:1",)}, task_index=0),
                    model=trained,
                    dataset=digits.facts,
                    data=digits.load(()),
                    peer_timeout_s=10.0,
                )
            )
            indices = np.arange(64, dtype=np.int32)
            losses = [engine.step(indices, examples_count=64) for _ in range(20)]
            assert losses[-1] < losses[0]
    import keras

    keras.backend.clear_session()
