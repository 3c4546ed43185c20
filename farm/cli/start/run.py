"""`farm run`: one process of the farm in the foreground, as systemd runs it."""

from __future__ import annotations

import importlib

import click

from farm import log
from farm.cli.session import settings
from farm.processes.private_files import keep_files_private

# Imported by name: the farm itself must not depend on the web package.
_PROCESSES = {
    "scheduler": "farm.scheduler.main",
    "collector": "farm.collector.main",
    "web": "web.server",
}


@click.command()
@click.argument("process", type=click.Choice(list(_PROCESSES)))
def run(process: str) -> None:
    """Run one process of the farm until SIGTERM or Ctrl-C. It logs to standard error."""
    keep_files_private()
    loaded = settings()
    log.configure(loaded.log_level, form=loaded.log_format)
    importlib.import_module(_PROCESSES[process]).run(loaded)
