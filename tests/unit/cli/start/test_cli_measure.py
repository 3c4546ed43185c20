"""How `farm measure` takes a command, and what it warns of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from farm.cli.main import main
from farm.cli.start.measure import warnings_of
from farm.store.result_tables import MeasurementRow


@pytest.mark.parametrize(
    ("world_size", "sent", "warns"),
    [(2, 0.0, True), (2, 70_000.0, False), (2, None, False), (1, 0.0, False)],
)
def test_ranks_that_sent_each_other_nothing_trained_alone(
    world_size: int, sent: float | None, warns: bool
) -> None:
    measured = MeasurementRow(
        model="script:fit.py",
        world_size=world_size,
        global_batch_size=64,
        sent_bytes_per_step=sent,
    )
    expected = "2 ranks sent each other nothing, so each trained alone: script:fit.py"
    assert warnings_of([measured]) == ([expected] if warns else [])


@pytest.mark.parametrize(("examples", "warns"), [(32.0, True), (64.1, False), (None, False)])
def test_a_script_that_trained_on_other_examples_is_named(
    examples: float | None, warns: bool
) -> None:
    measured = MeasurementRow(
        model="script:fit.py",
        world_size=2,
        global_batch_size=64,
        details={"quantities": {"examples_per_step": examples}},
    )
    expected = "a step had 32 examples, and not 64: script:fit.py"
    assert warnings_of([measured]) == ([expected] if warns else [])


@pytest.mark.parametrize("flags", [[], ["-u"]], ids=str)
def test_a_command_is_a_script_and_its_arguments(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    options = ["--global-batch-size", "8", "--dry-run", "--json", "--"]
    done = CliRunner().invoke(main, ["measure", *options, "python", *flags, "train.py", "-u", "1"])
    assert all(one.endswith(" -u 1") for one in json.loads(done.stdout)["commands"])


@pytest.mark.parametrize("words", ["torchrun train.py", "python -u", "python -c pass"])
def test_what_is_no_script_is_refused(words: str) -> None:
    options = ["--global-batch-size", "8", "--dry-run", "--"]
    done = CliRunner().invoke(main, ["measure", *options, *words.split()])
    assert done.exit_code == 2
    assert "in the place of torchrun" in done.stderr
