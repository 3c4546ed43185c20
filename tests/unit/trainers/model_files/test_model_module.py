"""A model's file is a module: what its code may use, and what it may raise. No framework."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from farm.messages.trainer_lines import FailureKind
from farm.trainers.failures import RankFailed
from farm.trainers.model_files.model_file import ModelFile, read_model_file

AS_A_MODULE = """
from __future__ import annotations

import inspect
import pickle
import typing
from dataclasses import dataclass, field
from pathlib import Path

TEXT = Path(__file__).with_name("units.txt").read_text()


@dataclass(frozen=True, slots=True)
class Config:
    units: int = int(TEXT)
    sizes: typing.ClassVar[list[int]] = []
    next: Config | None = field(default=None)


class Named(typing.NamedTuple):
    units: int


def build(example_shape, class_count):
    config = Config(next=Config(3))
    return {
        "copy": pickle.loads(pickle.dumps(config)) == config,
        "hints": sorted(typing.get_type_hints(Config)),
        "source": inspect.getsource(build).splitlines()[0],
        "units": config.units,
        "named": pickle.loads(pickle.dumps(Named(4))).units,
        "module": __name__,
    }
"""


def model_of(folder: Path, source: str | bytes, name: str = "mine.py") -> ModelFile:
    file = folder / name
    file.write_bytes(source.encode() if isinstance(source, str) else source)
    file.chmod(0o644)
    return read_model_file(name, file)


def called(folder: Path, source: str | bytes, name: str = "mine.py") -> Any:
    return model_of(folder, source, name).call_build((8, 8, 1), 10)


def refusal(folder: Path, source: str | bytes) -> str:
    with pytest.raises(RankFailed) as failed:
        called(folder, source)
    assert failed.value.kind is FailureKind.TRAINER_RAISED
    message = str(failed.value)
    assert message.startswith("model file:mine.py: ")
    assert "\n" not in message
    return message


def test_what_works_in_a_module_works_in_a_models_file(tmp_path: Path) -> None:
    (tmp_path / "units.txt").write_text("7")
    got = called(tmp_path, AS_A_MODULE)
    assert got == {
        "copy": True,
        "hints": ["next", "sizes", "units"],
        "source": "def build(example_shape, class_count):",
        "units": 7,
        "named": 4,
        "module": "model_file_mine",
    }
    assert Path(str(sys.modules["model_file_mine"].__file__)) == tmp_path / "mine.py"


def test_a_file_named_like_a_library_replaces_nothing(tmp_path: Path) -> None:
    import json

    source = "import json\ndef build(shape, count): return json.dumps(count)\n"
    assert called(tmp_path, source, "json.py") == "10"
    assert sys.modules["json"] is json


def test_no_file_is_written_beside_a_model_and_what_was_read_is_what_runs(tmp_path: Path) -> None:
    model = model_of(tmp_path, "def build(s, c):\n    return 1 / (c - 10)\n")
    (tmp_path / "mine.py").write_text("def build(s, c): return 'another'\n")
    with pytest.raises(RankFailed) as failed:
        model.call_build((8, 8, 1), 10)
    assert "raised ZeroDivisionError: division by zero (line 2)" in str(failed.value)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.py"]


def test_a_file_is_imported_anew_for_each_build(tmp_path: Path) -> None:
    model = model_of(
        tmp_path, "calls = []\ndef build(s, c):\n    calls.append(c)\n    return calls\n"
    )
    assert model.call_build((8, 8, 1), 3) == [3]
    assert model.call_build((8, 8, 1), 4) == [4]


ARGUMENTS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--units", type=int, {rest})
args = parser.parse_args()
def build(shape, count): return args.units
"""


def test_argparse_finds_an_empty_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["template.py", "0,1"])
    assert called(tmp_path, ARGUMENTS.format(rest="default=9")) == 9
    assert sys.argv == ["template.py", "0,1"]


def test_a_required_argument_is_named(tmp_path: Path) -> None:
    message = refusal(tmp_path, ARGUMENTS.format(rest="required=True"))
    assert "raised SystemExit: 2 (line 5), the following arguments are required: --units" in message
    assert "give each one a default" in message


@pytest.mark.parametrize("is_in_build", [False, True])
@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("raise SystemExit", "raised SystemExit"),
        ("sys.exit(0)", "raised SystemExit: 0"),
        ("sys.exit('no GPU')", "raised SystemExit: no GPU"),
        ("raise KeyboardInterrupt", "raised KeyboardInterrupt (line"),
        ("raise GeneratorExit('x')", "raised GeneratorExit: x"),
        ("raise type('Own', (BaseException,), {})('a\\nb')", "raised Own: a b"),
        ("raise type('Mute', (Exception,), {'__str__': lambda s: s.gone})", "raised Mute"),
        ("(lambda f: f(f))(lambda f: f(f))", "raised RecursionError: maximum recursion depth"),
        ("assert False, 'x' * 5000", "raised AssertionError: xxx"),
    ],
)
def test_whatever_is_raised_is_the_files_own_failure(
    tmp_path: Path, statement: str, text: str, is_in_build: bool
) -> None:
    inside = f"def build(s, c):\n    {statement}\n"
    top = f"{statement}\ndef build(s, c): ...\n"
    message = refusal(tmp_path, "import sys\n" + (inside if is_in_build else top))
    assert text in message
    assert f"(line {3 if is_in_build else 2})" in message
    assert len(message) < 700
    assert "model_file_mine" not in sys.modules or is_in_build


def test_want_of_memory_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(RankFailed) as failed:
        called(tmp_path, "def build(s, c): raise MemoryError('4 GiB')\n")
    assert failed.value.kind is FailureKind.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (b"def build(:\n", "raised SyntaxError: invalid syntax (mine.py, line 1)"),
        (b"x = 'caf\xe9'\ndef build(s, c): ...\n", "raised SyntaxError: (unicode error) 'utf-8'"),
        ("def build(s, c): ...\n".encode("utf-16"), "raised "),
        (b"def build(s, c):\n    ...\n\tx = 1\n", "raised TabError: inconsistent use of tabs"),
        (b"x = 0\0\n", "raised "),
        (b"from . import other\n", "raised ImportError: attempted relative import"),
        (b"import beside_it\n", "raised ModuleNotFoundError: No module named 'beside_it' (line 1)"),
        (b"", "expected a function build(example_shape, class_count), got none"),
        (b"build = 3\n", "expected a function build(example_shape, class_count), got int"),
        (b"def build(s): ...\n", "raised TypeError: build() takes 1 positional argument but 2"),
    ],
)
def test_what_is_no_such_module_is_refused_in_one_line(
    tmp_path: Path, source: bytes, text: str
) -> None:
    assert text in refusal(tmp_path, source)


def test_a_declared_encoding_and_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    latin = "# coding: latin-1\ndef build(s, c): return 'caf\u00e9'\n".encode("latin-1")
    assert called(tmp_path, latin) == "caf\u00e9"
    assert called(tmp_path, b"\xef\xbb\xbfdef build(s, c): return 1\n") == 1


def test_a_change_of_folder_ends_with_the_files_code(tmp_path: Path) -> None:
    before = Path.cwd()
    called(
        tmp_path, f"import os\nos.chdir({str(tmp_path)!r})\ndef build(s, c): return os.getcwd()\n"
    )
    assert Path.cwd() == before


def test_a_module_that_is_imported_under_main_does_not_run_as_a_script(tmp_path: Path) -> None:
    source = "def build(s, c): return 1\nif __name__ == '__main__':\n    raise SystemExit(5)\n"
    assert called(tmp_path, source) == 1


def test_a_pickled_class_is_found_again(tmp_path: Path) -> None:
    own = called(tmp_path, "class Own: pass\ndef build(s, c): return Own()\n")
    assert type(pickle.loads(pickle.dumps(own))) is type(own)
    assert os.fspath(tmp_path) in str(sys.modules[type(own).__module__].__file__)
