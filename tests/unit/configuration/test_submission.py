from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.errors import InvalidSpec
from farm.gang.lifecycle import JobState
from farm.store.base import Table
from farm.store.tables import JobRow, SweepRow
from farm.submission import MAX_FILE_BYTES, plan, read_sweep_file, submit
from tests.factories import NOW

SWEEP = """
name = "how many"
priority = 3

[[case]]
model = "mlp"
dataset = "digits"
strategy = "mwms_ring"
world_size = [2, 3]
global_batch_size = [32, 64]
one_way_delay_ms = 20

[[case]]
model = "mlp"
dataset = "digits"
strategy = "single"
world_size = 1
global_batch_size = [32, 64]
one_way_delay_ms = 20
"""


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "sweep.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def row_count(session: Session) -> int:
    return sum(
        session.scalar(sa.select(sa.func.count()).select_from(table)) or 0
        for table in Table.metadata.sorted_tables
    )


def test_a_sweep_file_becomes_waiting_jobs(tmp_path: Path, session: Session) -> None:
    submitted = submit(session, plan(read_sweep_file(write(tmp_path, SWEEP))), now=NOW)
    jobs = session.scalars(sa.select(JobRow).order_by(JobRow.id)).all()
    assert submitted.job_count == len(jobs) == 6
    assert sorted((j.strategy, j.world_size, j.global_batch_size) for j in jobs) == [
        ("mwms_ring", 2, 32),
        ("mwms_ring", 2, 64),
        ("mwms_ring", 3, 32),
        ("mwms_ring", 3, 64),
        ("single", 1, 32),
        ("single", 1, 64),
    ]
    assert {(j.state, j.priority, j.sweep_id) for j in jobs} == {
        (JobState.WAITING, 3, submitted.sweep_id)
    }
    assert session.get_one(SweepRow, submitted.sweep_id).name == "how many"


def test_what_is_left_out_is_stored_with_its_reason(session: Session) -> None:
    data = {
        "name": "x",
        "skip_impossible": True,
        "case": [
            {
                "model": "mlp",
                "dataset": "digits",
                "strategy": "single",
                "world_size": [1, 4],
                "global_batch_size": 32,
            }
        ],
    }
    submitted = submit(session, plan(data), now=NOW)
    assert submitted.job_count == 1
    assert submitted.skipped == (
        "case[0]: model=mlp dataset=digits strategy=single world_size=4 global_batch_size=32: "
        "world_size: expected 1 for strategy 'single', got 4",
    )
    assert session.get_one(SweepRow, submitted.sweep_id).skipped == list(submitted.skipped)


@pytest.mark.parametrize(
    "change",
    [
        ("world_size = 1", "world_size = 4"),
        ("world_size = [2, 3]", "world_size = [2, true]"),
        ('model = "mlp"', 'model = "mpl"'),
        ("priority = 3", "priority = 2026-01-01"),
        ("repetitions", "repetition"),
    ],
)
def test_a_sweep_that_is_refused_writes_nothing(
    tmp_path: Path, session: Session, change: tuple[str, str]
) -> None:
    text = ("repetitions = 2\n" + SWEEP).replace(*change)
    with pytest.raises(InvalidSpec):
        submit(session, plan(read_sweep_file(write(tmp_path, text))), now=NOW)
    assert row_count(session) == 0


def test_planning_needs_no_store() -> None:
    data = {
        "name": "x",
        "case": [
            {
                "model": "small_cnn",
                "dataset": "digits",
                "strategy": "single",
                "world_size": 1,
                "global_batch_size": 32,
            }
        ],
    }
    planned = plan(data)
    assert planned.sweep.name == "x"
    assert len(planned.expansion.jobs) == 1


def test_a_mistake_in_the_toml_is_one_line_with_its_line_number(tmp_path: Path) -> None:
    path = write(tmp_path, 'name = "x"\n[[case]\nmodel = "mlp"\n')
    with pytest.raises(InvalidSpec) as refused:
        read_sweep_file(path)
    message = str(refused.value)
    assert message.startswith(f"{path} line 2: expected TOML (")
    assert message.endswith("got '[[case]'")
    assert "\n" not in message


def test_a_file_that_breaks_off_names_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"sweep\.toml line 3: expected TOML \("):
        read_sweep_file(write(tmp_path, 'name = "x"\n\nmodel = ['))


def test_an_empty_file_lacks_its_fields(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"^case: "):
        plan(read_sweep_file(write(tmp_path, "")))


def test_a_file_that_is_no_text_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"sweep\.toml line 2: expected UTF-8 text, got b'\\xff'"):
        read_sweep_file(write(tmp_path, b'name = "x"\n\xff'))


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    assert read_sweep_file(write(tmp_path, b'\xef\xbb\xbfname = "x"')) == {"name": "x"}


def test_of_a_file_without_end_no_more_is_read_than_can_be_accepted() -> None:
    with pytest.raises(InvalidSpec, match=f"at most {MAX_FILE_BYTES} bytes"):
        read_sweep_file(Path("/dev/zero"))


def test_a_file_nested_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="expected TOML"):
        read_sweep_file(write(tmp_path, "x = " + "[" * 100_000))


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=f"at most {MAX_FILE_BYTES} bytes"):
        read_sweep_file(write(tmp_path, b"#" * (MAX_FILE_BYTES + 1)))


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidSpec, match=r"^sweep file: expected a readable file \(No such file or directory\)"
    ):
        read_sweep_file(tmp_path / "none.toml")
    with pytest.raises(InvalidSpec, match=r"\(Is a directory\)"):
        read_sweep_file(tmp_path)
