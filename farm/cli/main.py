"""The command `farm`: a table of commands, each loaded only when it is called.

To add a command write its module and add one line to `GROUPS`. Exit status: 0 done, 1 what was
asked for failed, 2 wrong usage or invalid input, 130 ended by Ctrl-C.
"""

from __future__ import annotations

import sys

_FAILED, _USAGE, _INTERRUPTED = 1, 2, 130

try:
    import importlib
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any, NoReturn

    import click

    from farm import __version__
    from farm.errors import FarmError, InvalidSpec
    from farm.processes.standard_output import standard_output
except KeyboardInterrupt:
    # They take most of the time of a short command, so that is when Ctrl-C comes.
    sys.exit(_INTERRUPTED)
except ModuleNotFoundError as error:
    sys.exit(f"farm: {error.name} is not installed: pip install 'benchfarm[server]'")

# By heading of `farm --help`: each name, where it is, and its line, which must not need the module.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Start a farm": {
        "demo": ("farm.cli.start.demo:demo", "Run a farm and a small sweep on this machine."),
        "measure": (
            "farm.cli.start.measure:measure",
            "Measure a training script of your own on this machine.",
        ),
        "up": ("farm.cli.start.up:up", "Run a farm on this machine until Ctrl-C."),
        "lab": (
            "farm.cli.start.lab:lab",
            "Run several hosts with real delays on this machine, as root.",
        ),
        "run": ("farm.cli.start.run:run", "Run the scheduler, the collector or the web server."),
        "reproduce": ("farm.cli.start.reproduce:reproduce", "Repeat a study and write its page."),
    },
    "Sweeps and jobs": {
        "submit": ("farm.cli.sweeps.submit:submit", "Enqueue the jobs of a sweep file."),
        "data": ("farm.cli.sweeps.data:data", "Print your data set's name for sweep files."),
        "status": (
            "farm.cli.sweeps.status:status",
            "Show sweeps, or the results of one, and why jobs wait.",
        ),
        "jobs": ("farm.cli.sweeps.jobs:jobs", "List jobs, optionally of one sweep or state."),
        "job": ("farm.cli.sweeps.jobs:job", "Show a job's attempts, changes and measurement."),
        "logs": ("farm.cli.sweeps.logs:logs", "Print the output of a job's trainers."),
        "cancel": ("farm.cli.sweeps.cancel_and_retry:cancel", "Cancel a sweep or a job."),
        "retry": ("farm.cli.sweeps.cancel_and_retry:retry", "Run failed and cancelled jobs again."),
        "pause": ("farm.cli.sweeps.cancel_and_retry:pause", "Start no further jobs of a sweep."),
        "resume": (
            "farm.cli.sweeps.cancel_and_retry:resume",
            "Start the jobs of a sweep that is paused or over budget.",
        ),
        "baseline": (
            "farm.cli.sweeps.check:baseline",
            "Set the sweep that later ones are compared with.",
        ),
        "check": ("farm.cli.sweeps.check:check", "Exit with 1 if a sweep became slower."),
        "history": (
            "farm.cli.sweeps.history:history",
            "Show a cell's step times over days, and changes of versions.",
        ),
    },
    "Advice": {
        "recommend": (
            "farm.cli.advice.recommend:recommend",
            "Say which configuration to train on, and why.",
        ),
        "predict": (
            "farm.cli.advice.predict:predict",
            "Predict the step time of each row of a file.",
        ),
        "plan": ("farm.cli.advice.plan:plan", "Write a sweep file of what to measure next."),
        "evaluate": ("farm.cli.advice.evaluate:evaluate", "Measure how good the predictions are."),
    },
    "Measurements": {
        "export": (
            "farm.cli.measurements.export:export",
            "Write a sweep's measurements to a file, or to a tracker.",
        ),
        "plot": (
            "farm.cli.measurements.plot:plot",
            "Draw figures of a sweep, for paper.",
        ),
        "import": (
            "farm.cli.measurements.imports:import_",
            "Import a published study or a table of your own.",
        ),
        "origins": (
            "farm.cli.measurements.origins:origins",
            "List the origins of measurements, or remove one.",
        ),
    },
    "Operate it": {
        "doctor": (
            "farm.cli.operating.doctor:doctor",
            "Say what is wrong with the farm, and what to do.",
        ),
        "agents": ("farm.cli.operating.agents:agents", "List the agents."),
        "agent": (
            "farm.cli.operating.agent:agent",
            "Admit agents, replace their keys, remove them.",
        ),
        "drain": (
            "farm.cli.operating.agents:drain",
            "Give an agent no new jobs, or give it jobs again.",
        ),
        "token": (
            "farm.cli.operating.tokens:token",
            "Create, list and revoke tokens of the web server.",
        ),
        "notifications": (
            "farm.cli.operating.notifications:notifications",
            "List the messages that were sent, and their delivery.",
        ),
        "db": ("farm.cli.operating.db:db", "Upgrade, check, back up, prune or copy the store."),
    },
}
CLI_COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}


class _Farm(click.Group):
    """Loads commands late, and turns every ending into one line and an exit status."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(CLI_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in CLI_COMMANDS:
            return None
        module, _, function = CLI_COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), function)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, CLI_COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", line) for name, (_, line) in group.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run a command and exit with its status. An interruption ends without a traceback."""
        try:
            with standard_output():
                self._main(args, prog_name, complete_var, **extra)
        except KeyboardInterrupt:  # before or after the command itself
            sys.exit(_INTERRUPTED)

    def _main(
        self,
        args: Sequence[str] | None,
        prog_name: str | None,
        complete_var: str | None,
        **extra: Any,
    ) -> NoReturn:
        try:
            result = super().main(args, prog_name, complete_var, False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(_USAGE)
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else "farm"
            message = " ".join(error.format_message().split()).rstrip(".")
            _end(_USAGE, f"{message} (see {path} --help)")
        except click.ClickException as error:
            _end(_FAILED, error.format_message())
        except InvalidSpec as error:
            _end(_USAGE, str(error))
        except FarmError as error:
            _end(_FAILED, str(error))
        except (click.Abort, KeyboardInterrupt):
            sys.exit(_INTERRUPTED)
        except UnicodeEncodeError:
            # A name of a file may have any bytes; whatever else is named is a text.
            for word in sys.argv[1:] if args is None else args:
                if not _is_text(word):
                    _end(_USAGE, f"expected a text in UTF-8, got {word!r}")
            raise
        sys.exit(result if isinstance(result, int) else 0)


@click.group(cls=_Farm, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="benchfarm")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="TOML file with settings; the environment wins over it.",
)
def main(config: Path | None) -> None:
    """Measure how many machines should train your neural network."""


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _end(status: int, line: str) -> NoReturn:
    click.echo(f"farm: {line}", err=True)
    sys.exit(status)


if __name__ == "__main__":
    main(prog_name="farm")
