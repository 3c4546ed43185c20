"""What stands between two markers of a page, and that nothing else is touched."""

from pathlib import Path

import pytest

from benchmarks.marked_part import MarkedPart

PART = MarkedPart("part")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(f"before\n{PART.begin}\nold\n{PART.end}\nafter\n")
    return path


def test_a_page_keeps_what_is_around_the_part(page: Path) -> None:
    assert PART.is_in(page)
    PART.write(page, ["one", "", "two"])
    assert page.read_text() == f"before\n{PART.begin}\n\none\n\ntwo\n\n{PART.end}\nafter\n"
    assert PART.read(page) == "\n\none\n\ntwo\n\n"


def test_parts_of_other_names_are_left_alone(page: Path) -> None:
    other = MarkedPart("other")
    page.write_text(f"{page.read_text()}{other.begin}\nkept\n{other.end}\n")
    PART.write(page, ["new"])
    assert other.read(page) == "\nkept\n"


@pytest.mark.parametrize(
    "text", ["", PART.begin, PART.end, f"{PART.end}\n{PART.begin}\n", "<!-- other: begin -->"]
)
def test_a_page_without_the_part_is_not_written(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert not PART.is_in(page)
    with pytest.raises(ValueError, match="expected the lines"):
        PART.write(page, ["new"])
    assert page.read_text() == text


def test_a_folder_is_no_page(tmp_path: Path) -> None:
    assert not PART.is_in(tmp_path)
    assert not PART.is_in(tmp_path / "absent.md")
