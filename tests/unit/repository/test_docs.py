"""What the documents say must be so: settings, commands, keys, names, links."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS
from farm import registry
from farm.cli.main import CLI_COMMANDS
from farm.cli.operating.doctor_checks import CHECKS
from farm.configuration.expansion import expand
from farm.configuration.sweep import parse_sweep
from farm.errors import InvalidSpec
from farm.gang.barriers import BARRIERS
from farm.gang.lifecycle import AttemptState, JobState
from farm.measuring.noise import NoiseKind
from farm.messages.commands import COMMANDS
from farm.messages.envelope import WIRE_VERSION
from farm.messages.reports import REPORTS
from farm.messages.trainer_lines import CONFIGURATION_FAILURES, FailureKind
from farm.settings.declaration import settings_of
from farm.settings.server import Settings
from tests.attacks import ATTACKS, NOT_TRIED
from tests.commands.command_line import accepts
from tests.document_tables import TABLES, DocumentTable
from worker_agent.settings import AgentSettings

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
GUIDE = DOCS / "guide.md"
PROTOCOL = DOCS / "protocol.md"
README = ROOT / "README.md"
DOCUMENTS = [
    *(README, ROOT / "deploy" / "README.md"),
    *sorted(DOCS.glob("*.md")),
    *sorted((DOCS / "clouds").glob("*.md")),
]

each_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def section(document: Path, title: str) -> str:
    """The text under a heading, up to the next of the same or a higher level."""
    text = document.read_text()
    heading = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    assert heading, f"{document.name} has no section '{title}'"
    rest = text[heading.end() :]
    following = re.search(rf"^#{{1,{len(heading[1])}}} ", rest, re.MULTILINE)
    return rest[: following.start()] if following else rest


def rows(text: str) -> list[list[str]]:
    """The cells of every table row, without titles and rulers."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rulers = [i for i, cells in enumerate(table) if set(cells[0]) <= set("-: ")]
    skipped = {*rulers, *(i - 1 for i in rulers)}
    return [cells for i, cells in enumerate(table) if i not in skipped]


def names(text: str) -> list[str]:
    """The code spans in the first column of every table."""
    return [name for cells in rows(text) for name in re.findall(r"`([^`]+)`", cells[0])]


def code(document: Path) -> list[str]:
    """The lines of fenced blocks, and the code spans of the text between them."""
    text = document.read_text()
    fences = re.findall(r"^```.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    return [line for fence in fences for line in fence.splitlines()] + spans


def anchors(document: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def accepted_keys(data: object) -> list[str]:
    """What the parser itself says it accepts where `data` has an unknown key."""
    with pytest.raises(InvalidSpec) as refused:
        parse_sweep(data)
    listed = refused.value.expected.removeprefix("one of the fields ").split(" (did you")[0]
    return listed.split(", ")


# --- settings ---------------------------------------------------------------------------------


@each_document
def test_every_variable_that_a_document_names_is_a_setting(document: Path) -> None:
    declared = (*settings_of(Settings).values(), *settings_of(AgentSettings).values())
    known = {setting.name for setting in declared}
    # Of the compose file, which sets no setting with them but shares out names and cores.
    known |= {"AGENT_CORES", "AGENT_KEYS"}
    # Set by the farm for a user's script, and no settings.
    known |= {"FARM_RANK", "FARM_WORLD_SIZE", "FARM_RANK_ADDRESSES"}

    text = document.read_text()
    known |= set(re.findall(r'= setting\(\s*"(\w+)"', text))  # what an example declares
    assert set(re.findall(r"\b(?:FARM|AGENT)_[A-Z0-9_]+\b", text)) <= known


# --- commands ---------------------------------------------------------------------------------


@each_document
def test_every_command_that_a_document_names_exists(document: Path) -> None:
    named = {
        command
        for line in code(document)
        for command in re.findall(r"(?:^|/bin/|exec web )farm ([a-z]+)\b", line)
    }

    assert named <= set(CLI_COMMANDS)


@each_document
def test_every_command_line_to_type_is_understood(document: Path) -> None:
    fences = re.findall(r"^```sh\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for fence in fences for line in fence.splitlines()]
    refused = [line for line in lines if line.startswith("farm ") and not understood(line)]

    assert refused == []


@each_document
def test_every_benchmark_that_a_document_names_exists(document: Path) -> None:
    lines = [words for line in code(document) if "-m benchmarks" in (words := line.split("#")[0])]
    modules = {name for line in lines for name in re.findall(r"-m benchmarks\.([\w.]+)", line)}
    listed = {
        name
        for line in lines
        for names in re.findall(r"-m benchmarks((?: \w+)+)", line)
        for name in names.split()
    }

    assert listed <= set(BENCHMARKS)
    assert all((ROOT / "benchmarks" / f"{name.replace('.', '/')}.py").exists() for name in modules)


def understood(line: str) -> bool:
    return accepts(shlex.split(line, comments=True))


def test_the_two_commands_of_the_readme_are_make_targets_that_ci_calls() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    promised = re.findall(r"^make (\w+)", section(README, "Two commands"), re.MULTILINE)
    ci = (ROOT / ".ci" / "run").read_text()

    assert promised == ["demo", "test"]
    assert set(promised) <= targets
    assert all(f"make {name}" in ci for name in promised)


def test_all_tests_include_the_brief_campaign_as_its_page_says() -> None:
    [recipe] = re.findall(
        r"^test-all:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE
    )

    assert "$(MAKE) chaos-brief" in recipe
    assert "`make test-all` runs `make chaos-brief`" in section(
        DOCS / "reliability.md", "The campaign"
    )


# --- sweeps -----------------------------------------------------------------------------------


def test_every_key_of_a_sweep_file_is_documented_and_no_other() -> None:
    case = {"model": "m", "?": 0}
    accepted = accepted_keys({"?": 0}) + accepted_keys({"name": "n", "case": [case]})
    documented = [cells[0].strip("`") for cells in rows(section(GUIDE, "Sweep file"))]
    keys = documented[: documented.index("single")]  # the tables of names follow

    assert keys == accepted


@each_document
def test_every_sweep_in_a_document_can_be_submitted(document: Path) -> None:
    for block in re.findall(r"^```toml\n(.*?)^```", document.read_text(), re.M | re.S):
        expansion = expand(parse_sweep(tomllib.loads(block)), registry.catalogue())

        assert expansion.jobs
        # Left out may be a width that a strategy cannot have, but never a name that is unknown.
        assert all(left_out.reason.startswith("world_size") for left_out in expansion.impossible)


# --- states, failures, messages ---------------------------------------------------------------


def test_every_job_state_is_documented() -> None:
    assert names(section(GUIDE, "Job states")) == [state.value for state in JobState]


def test_every_attempt_state_is_documented() -> None:
    spans = re.findall(r"`([^`]+)`", section(GUIDE, "Job states"))

    assert {state.value for state in AttemptState} <= set(spans)


def test_every_kind_of_failure_is_documented_beside_those_of_its_consequence() -> None:
    text = section(GUIDE, "Kinds of failure")
    of_configuration, of_machine = text.split("**The machine failed.**")

    assert set(names(of_configuration)) == {kind.value for kind in CONFIGURATION_FAILURES}
    assert set(names(of_machine)) == {kind.value for kind in FailureKind} - set(
        names(of_configuration)
    )


def test_every_message_is_in_the_protocol() -> None:
    assert names(section(PROTOCOL, "Commands")) == list(COMMANDS)
    assert names(section(PROTOCOL, "Reports")) == list(REPORTS)


def test_every_barrier_is_in_the_protocol() -> None:
    documented = [cells[0].strip("*") for cells in rows(section(PROTOCOL, "Four barriers"))]

    assert documented == [barrier.name for barrier in BARRIERS.values()]


# --- tables that are written from declarations ------------------------------------------------


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.part.name)
def test_a_table_is_what_the_code_declares(table: DocumentTable) -> None:
    written = table.part.read(DOCS / table.page).strip().splitlines()

    assert written == table.lines(), "run `python -m tests.document_tables`"


# --- security ---------------------------------------------------------------------------------


@pytest.mark.parametrize("title", ["Promises", "Load"])
def test_every_promise_names_a_test(title: str) -> None:
    lines = rows(section(DOCS / "reliability.md", title))

    assert lines
    for _, held_by in lines:
        assert re.search(r"`(tests/[\w/]+\.py(::test_\w+)?|test_\w+)`", held_by), held_by


@pytest.mark.parametrize(
    "title", ["What an attacker can do", "The gang's ports", "The trainer", "Fuzzing"]
)
def test_every_line_of_the_threat_model_names_a_test(title: str) -> None:
    lines = rows(section(DOCS / "security.md", title))

    assert lines
    for *_, held_by in lines:
        assert re.search(r"`tests/[\w/]+\.py(::test_\w+)?`", held_by), held_by


@each_document
def test_every_test_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text()
    spans = re.findall(r"`(tests/[^`]+)`", text)
    # Those without a file are of one that the text around them names.
    alone = re.findall(r"`(test_\w+)`", text)
    files = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))

    for path, _, test in (span.partition("::") for span in spans):
        assert (ROOT / path).exists(), path
        assert not test or f"\ndef {test}(" in (ROOT / path).read_text(), test
    assert [test for test in alone if f"\ndef {test}(" not in files] == []


def test_every_line_of_the_threat_model_is_attacked_and_in_the_table_of_refusals() -> None:
    lines = {cells[0] for cells in rows(section(DOCS / "security.md", "What an attacker can do"))}
    shown = [cells[1] for cells in rows(section(DOCS / "security.md", "Attacked"))]

    assert lines - {attack.line for attack in ATTACKS} == NOT_TRIED.keys()
    assert {attack.line for attack in ATTACKS} <= lines
    assert shown == [attack.tried for attack in ATTACKS]


# --- links ------------------------------------------------------------------------------------


@each_document
def test_links_and_images_lead_somewhere(document: Path) -> None:
    # A picture's source is a link with an exclamation mark before it.
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (document.parent / path).resolve() if path else document
        assert linked.exists(), f"{target} does not exist"
        assert linked.is_relative_to(ROOT), f"{target} leaves the repository"
        if anchor:
            assert anchor in anchors(linked), f"{target}: no such heading"


def test_every_document_can_be_reached_from_the_readme_over_the_index() -> None:
    index = DOCS / "README.md"
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in (README, index)
        for target in re.findall(r"\]\(([^)\s:]+)\)", page.read_text())
    }

    assert index in linked
    assert set(DOCUMENTS) - {README} <= linked


def test_every_kind_of_noise_is_documented_and_no_other() -> None:
    assert names(section(DOCS / "measuring.md", "Noise")) == [kind.value for kind in NoiseKind]


# --- operations -------------------------------------------------------------------------------


def test_every_check_of_the_doctor_is_documented_and_no_other() -> None:
    text = section(DOCS / "operations.md", "When something is wrong").split("| line | means |")[0]

    assert names(text) == [check.name for check in CHECKS]


def test_the_protocol_names_the_version_that_is_spoken() -> None:
    assert f'{{"version": {WIRE_VERSION}, ' in section(PROTOCOL, "Versions")
