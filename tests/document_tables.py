"""Tables of documents, and a module of the client, that follow from declarations in the code.

`python -m tests.document_tables` writes each table between its two markers; tests/unit hold them.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import click
from flask import Flask

from benchmarks.figures import root
from benchmarks.marked_part import MarkedPart
from farm import registry
from farm.cli.main import CLI_COMMANDS
from farm.cli.main import main as farm
from farm.configuration.axes import AXES
from farm.configuration.axis import Axis, AxisKind
from farm.configuration.catalogue import DatasetFacts, ExampleKind, ModelFacts
from farm.configuration.scripts import CASE_KEYS
from farm.configuration.sweep import CASE_OPTIONS, SweepOption
from farm.measuring.measurement_table import MEASUREMENT_TABLE
from farm.settings.declaration import settings_of
from farm.settings.server import Settings
from farm.store import result_tables, tables  # noqa: F401 # imported to fill the metadata
from farm.store.base import Table
from farm.trainers.models import MODELS
from farm.values.fields import Boolean
from tests import client_queries
from tests.client_queries import api_document
from web.api import RESOURCES
from web.api.metrics import PROMETHEUS_METRICS
from worker_agent.settings import AgentSettings

# Where a document says more of a command.
_MORE = {
    "measure": "scripts.md",
    "submit": "#a-sweep-of-your-own",
    "recommend": "#which-configuration-to-train-on",
    "predict": "#predictions-for-a-file",
    "export": "#export",
    "plot": "#figures-for-paper",
    "token create": "#tokens",
    "lab": "lab.md",
    "reproduce": "studies/README.md",
    "plan": "planning.md",
    "import table": "importing.md",
    "evaluate": "recommender.md#how-good-it-is",
    "run": "operations.md#the-processes",
    "doctor": "operations.md#when-something-is-wrong",
    "db backup": "operations.md#backups",
    "db convert": "operations.md#stores-from-before-the-first-release",
    "db copy": "operations.md#from-sqlite-to-postgresql",
    "db prune": "operations.md#what-is-kept-for-how-long",
    "db takeover": "operations.md#two-farms",
    "agent add": "security.md#keys",
    "agent sync": "security.md#accounts-at-the-broker",
}
_MOST_CHARACTERS = 200
_SIZED_WITH = ("digits", "mnist", "cifar10", "synthetic_imagenet", "synthetic_tokens")


@dataclass(frozen=True, slots=True)
class DocumentTable:
    """`page` is a file in docs. `lines` makes the table, with its titles."""

    page: str
    part: MarkedPart
    lines: Callable[[], list[str]]


def main() -> None:
    """Write all of them."""
    for one in TABLES:
        one.part.write(root() / "docs" / one.page, one.lines())
    (root() / client_queries.PATH).write_text(client_queries.queries_module(api_document()))


def measurement_columns() -> list[str]:
    """Return the columns that an export writes and an import reads."""
    return _table(
        ("column", "kind", "unit", "meaning", "if empty in an import"),
        (
            (f"`{column.name}`", column.kind.value, column.unit, column.meaning, column.if_empty)
            for column in MEASUREMENT_TABLE
        ),
    )


def axes() -> list[str]:
    """Return the axes of a case of a sweep file."""
    return _table(
        ("key", "default", "unit", "meaning"),
        ((f"`{axis.name}`", _default(axis), axis.unit, axis.explained) for axis in AXES),
    )


def _default(axis: Axis) -> str:
    if axis.is_required:
        return "required"
    if axis.kind is AxisKind.LINK:
        return "the agents' first"
    if axis.default is None:
        return axis.default_text

    text = axis.address(axis.default_value)
    return f'`"{text}"`' if axis.options and not isinstance(axis.type, Boolean) else f"`{text}`"


def case_options() -> list[str]:
    """Return the single values of a case of a sweep file."""
    return _table(
        ("key", "default", "meaning"),
        (
            (f"`{one.name}`", f"`{one.default:g}`" if one.default else _unset(one), one.meaning)
            for one in CASE_OPTIONS
        ),
    )


def script_keys() -> list[str]:
    """Return the keys of a case that names a script."""
    return _table(
        ("key", "meaning"), ((f"`{name}`", key.meaning) for name, key in CASE_KEYS.items())
    )


def _unset(option: SweepOption) -> str:
    return "`0`" if option.default == 0 else option.unset


def settings(declaring: type) -> list[str]:
    """Return the settings that a dataclass declares."""
    return _table(
        ("variable", "default", "meaning"),
        (
            (f"`{one.name}`", "none" if one.default is None else f"`{one.default}`", one.meaning)
            for one in settings_of(declaring).values()
        ),
    )


def metrics() -> list[str]:
    """Return what `GET /metrics` serves."""
    return _table(
        ("metric", "kind", "means"),
        ((f"`{m.name}`", m.kind, m.meaning) for m in PROMETHEUS_METRICS),
    )


def commands() -> list[str]:
    """Return what `--help` says of every command."""
    return _table(("command", "does"), _commands())


def map_of_the_code() -> list[str]:
    """Return the packages, each with the first sentence of what it says of itself."""
    return _table(("package", "what"), _packages())


def _packages() -> Iterator[tuple[str, ...]]:
    for top in ("farm", "worker_agent", "web", "benchfarm"):
        for file in sorted((root() / top).glob("**/__init__.py")):
            folder = file.parent.relative_to(root())
            if len(folder.parts) <= 2 and str(folder) != "farm":
                docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
                yield f"`{folder}`", _first_sentence(docstring)


def tables_of_the_store() -> list[str]:
    """Return the store's tables, each with its first sentence and who writes it."""
    return _table(("table", "a row", "written"), _stored())


def _stored() -> Iterator[tuple[str, ...]]:
    for mapper in sorted(Table.registry.mappers, key=lambda one: one.local_table.description):
        docstring, _, written = (inspect.getdoc(mapper.class_) or "").partition("\n\nWritten ")
        who = " ".join(written.partition("\n\n")[0].split())
        yield (
            f"`{mapper.local_table.description}`",
            _first_sentence(docstring),
            who.removesuffix("."),
        )


def _first_sentence(docstring: str) -> str:
    text = " ".join(docstring.partition("\n\n")[0].split())
    return re.split(r"(?<=[.])\s", text)[0]


def _commands() -> Iterator[tuple[str, ...]]:
    context = click.Context(farm, info_name="farm")
    for name, (_, line) in CLI_COMMANDS.items():
        command = farm.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            for part, one in sorted(command.commands.items()):
                yield _command(f"{name} {part}", one, one.get_short_help_str(_MOST_CHARACTERS))
        else:
            yield _command(name, command, line)


def _command(name: str, command: click.Command, line: str) -> tuple[str, ...]:
    context = click.Context(command)
    pieces = [p for p in command.collect_usage_pieces(context) if p != "[OPTIONS]"]
    usage = " ".join(("farm", name, *pieces)).replace("|", ",")  # which would end the cell
    more = f" ([more]({_MORE[name]}))" if name in _MORE else ""
    return f"`{usage}`", line + more


def requests() -> list[str]:
    """Return what the API's routes say of themselves, in their order."""
    app = Flask("api")
    for blueprint in RESOURCES:
        app.register_blueprint(blueprint)
    return _table(("request", "does"), _requests(app))


def _requests(app: Flask) -> Iterator[tuple[str, ...]]:
    for rule in app.url_map.iter_rules():
        if rule.endpoint == "static" or rule.endpoint.endswith(".get_file"):
            continue
        [method] = (rule.methods or set()) - {"HEAD", "OPTIONS"}
        address = re.sub(r"<(?:\w+_)?(\w+)>", r"{\1}", rule.rule)
        docstring = inspect.getdoc(app.view_functions[rule.endpoint]) or ""
        yield f"`{method} {address}`", docstring.partition("\n")[0]


def strategies() -> list[str]:
    """Return what a sweep may name as its strategy."""
    known = registry.catalogue().strategies.values()
    return _table(
        ("name", "what it is", "its axes beside those of all"),
        (
            (f"`{one.name}`", one.summary, ", ".join(f"`{name}`" for name in one.axes))
            for one in known
        ),
    )


def models() -> list[str]:
    """Return what a sweep may name as its model."""
    return _table(
        ("name", "what it is", "takes"),
        (
            (f"`{one.name}`", one.summary, _taken(one))
            for one in registry.catalogue().models.values()
        ),
    )


def datasets() -> list[str]:
    """Return what a sweep may name as its data set."""
    return _table(
        ("name", "what it is", "an example", "classes", "training examples", "test examples"),
        (
            (
                f"`{one.name}`",
                one.summary,
                _example(one),
                f"{one.class_count:,}",
                f"{one.train_examples_count:,}",
                f"{one.test_examples_count:,}",
            )
            for one in registry.catalogue().datasets.values()
        ),
        number_count=3,
    )


def _taken(facts: ModelFacts) -> str:
    side = facts.smallest_side
    is_limited = facts.takes is ExampleKind.IMAGES and side > 1
    return f"{facts.takes.value} of {side}x{side} or more" if is_limited else facts.takes.value


def _example(facts: DatasetFacts) -> str:
    shape = "x".join(map(str, facts.example_shape))
    return shape if facts.kind is ExampleKind.IMAGES else f"{shape} {facts.kind.value}"


def model_sizes() -> list[str]:
    """Return every model with an example of each shape that it takes."""
    return _table(
        (
            "model",
            "an example",
            "classes",
            "parameters",
            "forward Mflop",
            "gradients MB",
            "kept MB",
        ),
        _model_sizes(),
        number_count=5,
    )


def _model_sizes() -> Iterator[tuple[str, ...]]:
    for model in MODELS:
        for name in _SIZED_WITH:
            size = registry.model_size(model.facts.name, name)
            if size is None:
                continue
            dataset = registry.dataset(name).facts
            yield (
                f"`{model.facts.name}`",
                _example(dataset),
                str(dataset.class_count),
                f"{size.parameter_count:,}",
                f"{size.forward_flop_per_example / 1e6:,.2f}",
                f"{size.gradient_bytes / 1e6:,.2f}",
                f"{size.activation_bytes_per_example / 1e6:,.3f}",
            )


def _table(
    titles: Sequence[str], rows: Iterable[tuple[str, ...]], *, number_count: int = 0
) -> list[str]:
    """Return the lines of a table; its last `number_count` columns are aligned to the right."""
    ruler = ["---"] * (len(titles) - number_count) + ["---:"] * number_count
    return [f"| {' | '.join(cells)} |" for cells in (titles, ruler, *rows)]


TABLES = (
    DocumentTable("guide.md", MarkedPart("axes"), axes),
    DocumentTable("guide.md", MarkedPart("script-keys"), script_keys),
    DocumentTable("guide.md", MarkedPart("case-options"), case_options),
    DocumentTable("guide.md", MarkedPart("strategies"), strategies),
    DocumentTable("guide.md", MarkedPart("models"), models),
    DocumentTable("guide.md", MarkedPart("datasets"), datasets),
    DocumentTable("guide.md", MarkedPart("commands"), commands),
    DocumentTable("guide.md", MarkedPart("requests"), requests),
    DocumentTable("extending.md", MarkedPart("map"), map_of_the_code),
    DocumentTable("extending.md", MarkedPart("tables"), tables_of_the_store),
    DocumentTable("importing.md", MarkedPart("columns"), measurement_columns),
    DocumentTable("operations.md", MarkedPart("metrics"), metrics),
    DocumentTable("settings.md", MarkedPart("server-settings"), partial(settings, Settings)),
    DocumentTable("settings.md", MarkedPart("agent-settings"), partial(settings, AgentSettings)),
    DocumentTable("models.md", MarkedPart("sizes"), model_sizes),
)

if __name__ == "__main__":
    main()
