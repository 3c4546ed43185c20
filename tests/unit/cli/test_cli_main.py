"""How every command of `farm` ends: exit status and the one line on standard error."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from farm.cli.main import CLI_COMMANDS, main
from farm.errors import InvalidSpec, NotFound

_ROOT = Path(__file__).parents[3]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Let `farm probe` run a function."""

    def install(function: Callable[[], object]) -> None:
        module = sys.modules[__name__]
        monkeypatch.setattr(module, "probe", click.command()(function), raising=False)
        monkeypatch.setitem(CLI_COMMANDS, "probe", (f"{__name__}:probe", "A probe."))

    return install


def _raise(error: BaseException) -> Callable[[], object]:
    def function() -> object:
        raise error

    return function


@pytest.mark.parametrize("name", CLI_COMMANDS)
def test_every_command_of_the_table_exists_and_explains_itself(name: str) -> None:
    module, _, function = CLI_COMMANDS[name][0].partition(":")
    found = getattr(importlib.import_module(module), function)
    assert isinstance(found, click.Command)
    assert found.help


def test_help_names_every_command_without_loading_any() -> None:
    script = (
        "import sys\n"
        "from farm.cli.main import main\n"
        "try: main(['--help'], prog_name='farm')\n"
        "except SystemExit: pass\n"
        "heavy = {'sqlalchemy', 'celery', 'redis', 'rich', 'flask', 'tensorflow', 'numpy'}\n"
        "heavy |= {m for m in sys.modules if m.startswith('farm.cli.') and m != 'farm.cli.main'}\n"
        "print('loaded:', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=_ROOT, check=True
    )
    assert "loaded: []" in done.stdout
    for name, (_, line) in CLI_COMMANDS.items():
        assert name in done.stdout
        assert line in done.stdout


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (NotFound("no job 7: see farm jobs"), 1, "farm: no job 7: see farm jobs\n"),
        (
            InvalidSpec("world_size", 0, "at least 1"),
            2,
            "farm: world_size: expected at least 1, got 0\n",
        ),
        (KeyboardInterrupt(), 130, ""),
        (click.ClickException("x"), 1, "farm: x\n"),
    ],
)
def test_an_error_is_one_line_and_a_status(
    command: Callable[[Callable[[], object]], None], error: BaseException, status: int, line: str
) -> None:
    command(_raise(error))
    result = CliRunner().invoke(main, ["probe"])
    assert result.exit_code == status
    assert result.stderr.lstrip("\n") == line
    assert result.stdout == ""


@pytest.mark.parametrize("module", ["importlib", "click", "farm.errors"])
def test_an_interrupt_while_the_program_is_loaded_is_silent(module: str) -> None:
    script = (
        "import sys\n"
        f"sys.modules.pop({module!r}, None)\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "import farm.cli.main\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=_ROOT, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_bug_keeps_its_traceback(command: Callable[[Callable[[], object]], None]) -> None:
    command(_raise(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        CliRunner().invoke(main, ["probe"], catch_exceptions=False)


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["up", "--agents", "many"], ["run", "tests"], ["--nonsense"]]
)
def test_wrong_usage_is_one_line_and_status_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("farm: ")
    assert result.stderr.count("\n") == 1
    assert "--help" in result.stderr


def test_without_a_command_the_help_is_shown_with_status_2() -> None:
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 2
    assert "Sweeps and jobs:" in result.stderr


@pytest.mark.parametrize("size", [2_000_000, 10])
def test_a_reader_that_leaves_early_causes_no_complaint(size: int) -> None:
    script = (
        "import click, sys, time\n"
        "import farm.cli.main as m\n"
        "def probe():\n"
        "    time.sleep(0.2)  # the reader is gone\n"
        f"    sys.stdout.write('x' * {size})\n"
        "m.probe = click.command()(probe)\n"
        "m.CLI_COMMANDS['probe'] = ('farm.cli.main:probe', '')\n"
        "m.main(['probe'], prog_name='farm')\n"
    )
    done = subprocess.run(
        ["bash", "-c", '"$0" -c "$1" | true; exit ${PIPESTATUS[0]}', sys.executable, script],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 1


def test_a_configuration_file_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "farm.toml"
    file.write_text("FARM_PORT = 1\n")
    result = CliRunner().invoke(main, ["--config", str(file), "db", "check"])
    assert result.exit_code == 2
    assert result.stderr.startswith("farm: FARM_PORT: expected one of the settings")
