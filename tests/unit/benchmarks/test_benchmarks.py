"""The benchmarks: what a figure says, what ends with status 1, and that each is described."""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS, TABLE, main, write_lines
from benchmarks.committed import Committed, change_of, print_beside, read_committed
from benchmarks.figures import STOPPED_STATUS, BenchmarkFigure, at_least, run_benchmark, shown
from benchmarks.fleet.scale import fitted_exponent
from benchmarks.pairs import PairedRatio
from benchmarks.training.warm import agrees
from farm.errors import FarmError

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "performance.md"
AT = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)


def figure(*, reached: bool | None = True) -> BenchmarkFigure:
    return BenchmarkFigure(
        name="a | figure", unit="s", ours=0.5, baseline=0.25, against="bare", reached=reached
    )


def measuring(
    *figures: BenchmarkFigure,
) -> Callable[[argparse.Namespace], Sequence[BenchmarkFigure]]:
    return lambda given: figures


@pytest.mark.parametrize(("name", "module"), BENCHMARKS.items())
def test_every_benchmark_is_a_file_with_a_description(name: str, module: str) -> None:
    assert module.endswith(f".{name}")
    source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
    assert source.startswith('"""')
    assert "run_benchmark(__doc__, " in source


def test_make_bench_fills_the_page() -> None:
    assert "-m benchmarks --write docs/performance.md" in (ROOT / "Makefile").read_text()
    assert TABLE.is_in(PAGE)


def test_the_ratio_is_ours_to_the_baseline_unless_it_is_given() -> None:
    assert figure().ratio == 2.0
    paired = BenchmarkFigure(name="a", unit="s", ours=1.0, baseline=2.0, against="b", ratio=0.51)
    assert paired.ratio == 0.51
    alone = BenchmarkFigure(name="a", unit="s", ours=1.0, baseline=None, against="none")
    assert alone.ratio is None


@pytest.mark.parametrize(
    ("figures", "options", "status"),
    [
        ([figure()], [], 0),
        ([figure(), figure(reached=None)], [], 0),
        ([figure(), figure(reached=False)], [], 1),
        ([figure(reached=False)], ["--quick"], 0),
        ([], [], 1),
    ],
)
def test_a_missed_limit_or_no_figure_at_all_is_a_failure(
    figures: list[BenchmarkFigure],
    options: list[str],
    status: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_benchmark("doc", measuring(*figures), argv=["--json", *options]) == status
    printed = json.loads(capsys.readouterr().out)
    assert [BenchmarkFigure(**fields).ours for fields in printed] == [f.ours for f in figures]


def test_what_a_user_can_mend_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(given: argparse.Namespace) -> list[BenchmarkFigure]:
        raise FarmError("there is no PostgreSQL")

    assert run_benchmark("doc", fail, argv=["--quick"]) == 1
    assert capsys.readouterr().err == "benchmark failed: there is no PostgreSQL\n"


def test_a_signal_ends_a_benchmark_once_and_restores_what_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cleaned = []

    def wait(given: argparse.Namespace) -> list[BenchmarkFigure]:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGINT)  # the second one must not cut this short
            cleaned.append(True)
        return [figure()]

    before = signal.getsignal(signal.SIGINT)
    assert run_benchmark("doc", wait, argv=["--quick"]) == STOPPED_STATUS
    assert cleaned
    assert capsys.readouterr() == ("", "stopped\n")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", ""])
def test_an_option_refuses_a_number_too_small_to_measure_anything(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="a whole number of at least 1, got"):
        at_least(1)(text)
    assert at_least(1)("1") == 1


@pytest.mark.parametrize(
    ("low", "high", "is_equal"),
    [
        (0.98, 1.01, True),
        (1.003, 1.018, True),  # not 1, but next to it
        (1.003, 1.03, False),
        (0.96, 1.06, False),  # 1 is in it, as in any interval that is wide enough
    ],
)
def test_step_times_agree_only_if_their_ratio_is_known(
    low: float, high: float, is_equal: bool
) -> None:
    ratio = PairedRatio(median=(low + high) / 2, low=low, high=high, pair_count=16)
    assert agrees(ratio) is is_equal


def test_a_table_that_lacks_a_benchmark_does_not_replace_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{TABLE.begin}\nold\n{TABLE.end}\n")
    monkeypatch.setattr("benchmarks.__main__.BENCHMARKS", {"absent": "benchmarks.absent"})
    assert main(["--write", str(page)]) == 1
    assert "old" in page.read_text()
    assert "failed or missed a limit: absent" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "s", "-"),
        (2.5, "s", "2.50 s"),
        (0.0123, "s", "12.3 ms"),
        (4e-05, "s", "40.0 µs"),
        (76_759_040, "bytes", "76.8 MB"),
        (0.00139, "ratio", "0.139 %"),
        (26_559.6, "rows/s", "26,560 rows/s"),
        (0, "ticks", "0 ticks"),
    ],
)
def test_a_figure_is_shown_in_the_unit_that_people_read(
    value: float | None, unit: str, text: str
) -> None:
    assert shown(value, unit) == text


def test_a_benchmark_replaces_its_own_lines_and_no_others(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{TABLE.begin}\nold\n{TABLE.end}\n\nafter\n")
    write_lines(page, "warm", [figure()], at=AT)
    for _ in range(2):
        write_lines(page, "ingest", [figure(), figure()], at=AT + dt.timedelta(days=1))
    text = page.read_text()
    assert text.startswith(f"before\n\n{TABLE.begin}\n\n- Machine of 2026-03-01: ")
    assert text.count("- Machine of ") == 2
    assert text.endswith(f"{TABLE.end}\n\nafter\n")
    assert "old" not in text
    cells = r"a \| figure | 500 ms | 250 ms | bare | 2 | - | yes"
    assert [line for line in text.splitlines() if line.startswith("| `")] == [
        f"| `ingest` | {cells} | 2026-03-02 |",
        f"| `ingest` | {cells} | 2026-03-02 |",
        f"| `warm` | {cells} | 2026-03-01 |",
    ]


def with_lines(page: Path, *lines: str) -> Path:
    page.write_text("\n".join([TABLE.begin, *lines, TABLE.end]))
    return page


def test_figures_of_another_day_stay_with_the_machine_of_that_day(tmp_path: Path) -> None:
    old = [
        "- Machine of 2026-02-27: another",
        "| `warm` | old | 2026-02-27 |",
        "- `warm`, old: why",
    ]
    page = with_lines(tmp_path / "page.md", *old)
    write_lines(page, "ingest", [figure()], at=AT)
    assert set(old) <= set(page.read_text().splitlines())

    write_lines(page, "warm", [figure()], at=AT)
    assert not any(line in page.read_text() for line in old)


@pytest.mark.parametrize(
    "value", ["- Machine of 2026-02-27: of other rows", "- Machine of 2026-03-01: another"]
)
def test_figures_of_which_no_machine_can_be_told_do_not_stay(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = with_lines(
        tmp_path / "page.md", value, "| `warm` | old | 2026-03-01 |", "- `warm`, old: why"
    )
    write_lines(page, "ingest", [figure()], at=AT)
    assert "old" not in page.read_text()
    assert value not in page.read_text()
    warning = "the other lines of 2026-03-01 go, they are of another machine"
    assert (warning in capsys.readouterr().err) == value.endswith("another")


def test_todays_ratios_are_told_beside_the_committed_ones(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{TABLE.begin}\n{TABLE.end}\n")
    write_lines(page, "ingest", [figure()], at=AT)
    committed = read_committed(page)
    assert committed == {("ingest", "a | figure"): Committed(2.0, "2026-03-01")}

    before = committed["ingest", "a | figure"]
    assert change_of(figure(), before) == "as before"
    slower = dataclasses.replace(figure(), ours=1.0, ratio=4.0)
    assert change_of(slower, before) == "2 times, WORSE"
    assert change_of(dataclasses.replace(slower, unit="rows/s"), before) == "2 times, better"
    assert change_of(dataclasses.replace(slower, ratio=1.0), before) == "0.5 times, better"
    assert change_of(dataclasses.replace(slower, limit="76 to 86 %"), before) == "2 times"
    assert change_of(slower, None) == "-"


def test_the_committed_page_is_read_whole() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    of_table = [line for line in lines if line.split("`")[1] in BENCHMARKS]
    with_ratio = [line for line in of_table if line.split(" | ")[5] != "-"]
    assert len(read_committed(PAGE)) == len(with_ratio) > 20


def test_all_are_printed_in_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    results = {"ingest": [figure()], "pages": [dataclasses.replace(figure(), note="why")]}
    print_beside(results, {("ingest", "a | figure"): Committed(1.0, "2026-03-01")})
    output = capsys.readouterr().out
    assert "1 (2026-03-01)" in output
    assert "2 times, WORSE" in output
    assert "pages, a | figure: why" in output


def test_growth_is_fitted_to_all_sizes() -> None:
    assert fitted_exponent([10, 100, 1000], [0.2, 2.0, 20.0]) == pytest.approx(1.0)
    assert fitted_exponent([10, 100, 1000], [3.0, 3.0, 3.0]) == pytest.approx(0.0)
    assert fitted_exponent([10, 100], [0.0, 5.0]) is None, "nothing has no logarithm"
