"""Whether a command line that a document or a unit names would be understood."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import click

from farm.cli.main import main

_PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def accepts(command: Sequence[str]) -> bool:
    """Whether the installed program, its options and its arguments exist; nothing is run."""
    program, *arguments = command
    scripts = tomllib.loads(_PYPROJECT.read_text())["project"]["scripts"]
    if program != "farm":
        return program in scripts and set(arguments) <= {"--check", "--clear-network"}
    context: click.Context | None = None
    found: click.Command = main
    while isinstance(found, click.Group):
        context = click.Context(found, parent=context)
        name, *arguments = arguments or [""]
        subcommand = found.get_command(context, name)
        if subcommand is None:
            return False
        found = subcommand
    try:
        found.make_context(found.name, arguments, parent=context)
    except click.UsageError:
        return False
    return True
