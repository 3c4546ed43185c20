"""The examples of docs/extending.md and docs/models.md do what the documents say."""

from __future__ import annotations

import importlib.util
import re
import textwrap
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from farm.configuration.catalogue import ModelFacts
from farm.configuration.spec import JobSpec, NetworkProfile
from farm.errors import EmulationFailed
from farm.exporting import Form
from farm.messages.commands import RankAddress
from farm.messages.trainer_lines import GoLine
from farm.registry import dataset, strategy
from farm.trainers.contracts import RankContext
from farm.trainers.model_files.model_file import ModelFile
from tests.extending.copied_tree import CopiedTree
from worker_agent.network.emulators.contracts import Site

DOCS = Path(__file__).parents[3] / "docs"
JOB = JobSpec(
    model="mlp", dataset="digits", strategy="single", world_size=1, global_batch_size=64, steps=1
)


def example(document: str, title: str, *, language: str = "python") -> str:
    """The code under a heading."""
    text = (DOCS / document).read_text()
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    fence = rf"^ *```{language}\n(.*?)^ *```"
    (block,) = re.findall(fence, section, re.MULTILINE | re.DOTALL)
    return textwrap.dedent(block)


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """What a heading of docs/extending.md adds: a file, and an entry of a list with its import."""

    file: str
    text: str
    list_name: str
    list_file: str
    entry: str

    @property
    def import_line(self) -> str:
        """What makes the entry's name known where the list is."""
        module = self.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        package, _, stem = module.rpartition(".")
        name = re.split(r"[.(]", self.entry)[0]
        if name == stem:
            return f"from {package} import {name}"
        return f"from {module} import {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the document's table. `paths`: of every file that is new or gets a line."""

    file: str
    list_name: str
    list_file: str
    paths: tuple[str, ...]

    def paths_of(self, name: str) -> set[str]:
        return {path.replace("NAME", name) for path in self.paths}


def addition(title: str, row: str) -> Addition:
    """Read a section; `row`: of the document's table, whose file and list it has to have."""
    text = example("extending.md", title)
    first = re.match(r"# (\S+), in (\w+): (.+)\n", text)
    assert first, f"the example of {title} does not say where it goes"
    file, list_name, entry = first.groups()
    of_row = table_row(row)
    assert re.fullmatch(of_row.file.replace("NAME", r"\w+"), file)
    assert list_name == of_row.list_name
    return Addition(
        file=file, text=text, list_name=list_name, list_file=of_row.list_file, entry=entry
    )


def table_row(kind: str) -> Row:
    document = (DOCS / "extending.md").read_text()
    [row] = re.findall(rf"^\| {re.escape(kind)} \|(.*)\|$", document, re.MULTILINE)
    files, lines, _ = row.split(" | ")
    named = re.match(r"\[(\w+)\]\(\.\./([\w/.]+)\)", lines)
    assert named
    new = re.findall(r"`([^`]+)`", files)
    listed = re.findall(r"\]\(\.\./([^)]+)\)|`(\S+/\S+)`", lines)
    return Row(
        file=new[0] if new else "",
        list_name=named[1],
        list_file=named[2],
        paths=(*new, *(link or path for link, path in listed)),
    )


def add(tree: CopiedTree, one: Addition) -> None:
    tree.add_file(one.file, one.text)
    tree.add_import(one.list_file, one.import_line)
    tree.add_entry(one.list_file, one.list_name, one.entry)


@pytest.fixture
def tree(tmp_path: Path) -> CopiedTree:
    return CopiedTree(tmp_path / "copy")


OF_A_SWEEP = {"catalogue", "form", "POST /api/v1/sweeps", "job", "trained job"}


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("title", "row", "name", "places"),
    [
        ("A strategy", "a strategy", "single_cpu", OF_A_SWEEP),
        ("A model", "a model that is shipped", "two_layers", {*OF_A_SWEEP, "size"}),
        ("A data set", "a data set", "few_digits", OF_A_SWEEP),
        ("A metric", "a metric", "machine_runnable_count", {"sample", "series of the API"}),
        ("A predictor", "a predictor", "same_width", {"estimate", "reason"}),
        ("A page", "a page", "counts", {"page", "layout", "signing in"}),
        (
            "A tracker",
            "an experiment tracker",
            "json_files",
            {"FARM_TRACKER", "farm export --to", "sent once"},
        ),
    ],
)
def test_one_file_and_one_line_with_its_import_add(
    title: str, row: str, name: str, places: set[str], tree: CopiedTree
) -> None:
    one = addition(title, row)
    add(tree, one)
    found = tree.run("tests.extending.added_parts", title.removeprefix("A "), name)

    assert found == places
    assert tree.added() == {one.file: len(one.text.splitlines()), one.list_file: 2}
    assert set(tree.added()) == table_row(row).paths_of(Path(one.file).stem)


def test_an_emulator_needs_a_line_in_two_lists(tree: CopiedTree) -> None:
    one = addition("An emulator", "a network emulator")
    add(tree, one)
    does = 'EmulatorFacts(name="site_program", conditions=frozenset({"one_way_delay_s"}))'
    tree.add_entry(SPEC, "EMULATOR_FACTS", does)

    found = tree.run("tests.extending.added_parts", "emulator", "site_program")
    assert found == {"emulators of an agent", "sweep file", "refusal"}
    assert tree.added() == {
        one.file: len(one.text.splitlines()),
        one.list_file: 2,
        SPEC: 1,
    }
    assert set(tree.added()) == table_row("a network emulator").paths_of("site_program")


def test_a_study_is_three_files_and_one_line_with_its_import(tree: CopiedTree) -> None:
    one = addition("A study", "a study that is repeated")
    add(tree, one)
    added = {one.file: len(one.text.splitlines()), one.list_file: 2}
    for language, first in (("toml", r"# (\S+)\n"), ("md", r"<!-- (\S+) -->\n")):
        text = example("extending.md", "A study", language=language)
        file = re.match(first, text)
        assert file
        tree.add_file(file[1], text)
        added[file[1]] = len(text.splitlines())

    assert tree.run("tests.extending.added_parts", "study", "batches") == {
        *("farm reproduce", "runs of its sweep", "page"),
    }
    assert tree.added() == added
    assert set(added) == table_row("a study that is repeated").paths_of("batches")


def test_a_published_study_is_two_files_and_one_line_with_its_import(tree: CopiedTree) -> None:
    one = addition("A published study", "a published study")
    add(tree, one)
    paths = table_row("a published study").paths_of("doe2020")
    [data_file] = paths - {one.file, one.list_file}
    data = example("extending.md", "A published study", language="csv")
    tree.add_file(data_file, data)

    assert tree.run("tests.extending.added_parts", "published study", "doe2020") == {
        *("farm import", "measurements", "page Data", "recommendation"),
    }
    lines = {
        file: len(text.splitlines()) for file, text in ((one.file, one.text), (data_file, data))
    }
    assert tree.added() == {**lines, one.list_file: 2}
    assert set(tree.added()) == paths


SPEC = "farm/configuration/spec.py"


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


PAUSE = """Axis(
    name="pause_ms",
    field="pause_s",
    kind=AxisKind.SETUP,
    type=Amount(unit="ms", noun="number of milliseconds", per_base=1000, low=0, high=1000),
    title="Pause",
    meaning="between two steps",
    default=0.001,
)"""


MOST_EXAMPLES = """Axis(
    name="most_examples",
    kind=AxisKind.SETUP,
    type=WholeNumber(1, 1000),
    title="Most examples",
    meaning="of one class in a batch",
    write=lambda value: "all" if value is None else f"{value} of a class",
)"""


EVERYWHERE = {
    *(
        "sweep file",
        "TOML",
        "form with its value",
        "refusal",
        "refusal of the API",
        "API document",
        "form",
        "job",
    ),
    *("proposed sweep", "page of a measurement"),
    *("POST /api/v1/sweeps", "GET /api/v1/sweeps/{id}", "GET /api/v1/measurements"),
    *("measurement", "command's table", "page's table", "heat map", "bars", "comparison"),
    *(
        "export",
        *(f"export as {form.value}" for form in Form),
        "import",
        "refusal of an import",
        "imported measurement",
        "candidates",
        "guide",
    ),
}


@pytest.mark.parametrize(
    ("name", "declaration"),
    [
        ("prefetched_batches", example("extending.md", "An axis")),
        ("pause_ms", PAUSE),
        ("most_examples", MOST_EXAMPLES),
    ],
)
def test_one_declaration_of_an_axis_puts_it_everywhere(
    name: str, declaration: str, tree: CopiedTree
) -> None:
    row = table_row("an axis of a strategy's set-up")
    tree.add_entry(row.list_file, row.list_name, declaration.rstrip())

    places = {*EVERYWHERE, "charts", "refusal beside a script"}
    assert tree.run("tests.extending.added_axis", name) == places
    assert tree.added() == {row.list_file: len(declaration.splitlines())}
    assert set(tree.added()) == row.paths_of(name)


@pytest.mark.parametrize(
    "kind",
    [
        'Word(("nothing", "half of 1%")), default="nothing"',
        "Boolean(), default=True",
        "Boolean()",
    ],
)
def test_an_axis_of_choices_is_one_declaration_with_the_import_of_its_type(
    kind: str, tree: CopiedTree
) -> None:
    row = table_row("an axis of a strategy's set-up")
    axis = f'Axis(name="prefetching", title="P", meaning="m", kind=AxisKind.SETUP, type={kind})'
    tree.add_entry(row.list_file, row.list_name, axis)
    name = kind.partition("(")[0]
    tree.add_import(row.list_file, f"from farm.values.fields import {name}")

    places = {*EVERYWHERE, "refusal beside a script"}
    assert tree.run("tests.extending.added_axis", "prefetching") == places
    assert tree.added() == {row.list_file: 2}


@pytest.mark.parametrize("more", ["is_named=True", "is_named=True, default=4, unused=0"])
def test_a_named_axis_is_of_the_strategies_that_name_it(more: str, tree: CopiedTree) -> None:
    row = table_row("such an axis of some strategies")
    lines = example("extending.md", "An axis").splitlines()
    lines = [line.replace("WholeNumber(1,", "WholeNumber(0,") for line in lines]
    kept = [line for line in lines[:-1] if "default" not in line or "default" not in more]
    tree.add_entry(row.list_file, row.list_name, "\n".join([*kept, f"    {more},", lines[-1]]))
    tree.replace(
        "farm/trainers/strategies/mwms_ring.py", '"compile")', '"compile", "prefetched_batches")'
    )

    places = {*EVERYWHERE, "charts", "refusal beside a script", "other strategies"}
    assert tree.run("tests.extending.added_axis", "prefetched_batches") == places
    assert set(tree.added()) == row.paths_of("mwms_ring")


QUEUE = """Axis(
    name="queued_packets",
    kind=AxisKind.PROFILE,
    has_column=False,
    type=WholeNumber(1, 1000),
    title="Queued packets",
    meaning="packets that wait before others are dropped",
    none="unlimited",
    is_limit=True,
)"""


@pytest.mark.parametrize(
    ("name", "declaration", "field"),
    [
        (
            "duplicated_packets_percent",
            example("extending.md", "An axis of the network").rstrip(),
            "duplicated_packets_ratio: float = 0.0",
        ),
        (
            "pause_ms",
            PAUSE.replace("kind=AxisKind.SETUP", "kind=AxisKind.PROFILE, has_column=False"),
            "pause_s: float = 0.001",
        ),
        ("queued_packets", QUEUE, "queued_packets: int | None = None"),
    ],
)
def test_a_declaration_and_a_field_of_an_axis_of_the_network_put_it_everywhere(
    name: str, declaration: str, field: str, tree: CopiedTree
) -> None:
    row = table_row("an axis of the network")
    tree.add_entry(row.list_file, row.list_name, declaration)
    last = "    jitter_s: float = 0.0\n"
    tree.replace(SPEC, last, f"{last}    {field}\n")
    tree.replace(SPEC, '"jitter_s"}', f'"jitter_s", "{field.partition(":")[0]}"}}')

    places = {*EVERYWHERE, "charts", "refusal by an emulator", "option"}
    assert tree.run("tests.extending.added_axis", name) == places
    assert set(tree.added()) == row.paths_of(name)


@pytest.mark.parametrize(
    "more",
    [
        "",
        "write=count, is_whole=True, most=100, time_power=-1,\n",
        "least=-10.5, is_whole=True,\n",
        "least=-10.5, is_advised=True,\n",
    ],
)
def test_one_declaration_of_a_quantity_puts_it_everywhere(more: str, tree: CopiedTree) -> None:
    metric = addition("A metric", "a metric")
    add(tree, metric)
    before = tree.added()
    declaration = example("extending.md", "A quantity").replace("    of=", f"{more}    of=")
    row = table_row("a measured quantity")
    tree.add_entry(row.list_file, row.list_name, declaration.rstrip())

    assert tree.run("tests.extending.added_quantity", "machine_runnable_count") == {
        *("measurement", "export", "import", "refusal of an import"),
        *("command's table", "command's JSON", "heat map"),
        *("charts", "page's table of cells", "page's table of jobs", "choice of a metric"),
        *("job's page", "page of a measurement", "API", "GET /api/v1/sweeps/{id}", "documents"),
    }
    assert tree.added() == {**before, row.list_file: len(declaration.splitlines())}
    assert set(tree.added()) - set(before) == row.paths_of("machine_runnable_count")


@pytest.mark.parametrize(
    ("kind", "name", "more"),
    [
        ("a setting of the server", "FARM_WEB_PROCESS_COUNT", {"processes of a farm"}),
        ("a setting of an agent", "AGENT_WEB_PROCESS_COUNT", {"farm-agent --help"}),
    ],
)
def test_one_declaration_of_a_setting_puts_it_everywhere(
    kind: str, name: str, more: set[str], tree: CopiedTree
) -> None:
    declaration = example("extending.md", "A setting").replace("FARM_WEB_PROCESS_COUNT", name)
    row = table_row(kind)
    tree.add_field(row.list_file, row.list_name, declaration.rstrip())

    everywhere = {"default", "environment", "file", "environment before file", "refusal"}
    messages = {"message of farm"} if row.list_name == "Settings" else set()
    found = tree.run("tests.extending.added_setting", "web_process_count")
    assert found == {*everywhere, "settings.md", *messages, *more}
    assert tree.added() == {row.list_file: len(declaration.splitlines())}
    assert set(tree.added()) == row.paths_of(name)


@pytest.mark.tensorflow
def test_a_model_of_ones_own_trains() -> None:
    import numpy as np

    source = example("models.md", "A model of your own").encode()
    own = ModelFile(facts=ModelFacts(name="file:mine.py", summary="of the document"), source=source)
    single = strategy("single")
    digits = dataset("digits")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what libraries say while they are imported
        single.prepare(JOB, 1)
        engine = single.build(
            RankContext(
                job=JOB,
                rank=0,
                role="worker",
                go=GoLine(cluster={"worker": ("127.0.0.1:1",)}, task_index=0),
                model=own,
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
