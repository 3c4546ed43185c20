"""What was meant for a terminal, made to be read, and cut to its end."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from farm.text.log_text import last_lines, one_line, printable, readable


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("plain\n\ttext \N{SNOWMAN}\n", "plain\n\ttext \N{SNOWMAN}\n"),
        ("\x1b[31mred\x1b[0m\x1b[2K", "red"),
        ("10 %\r20 %\r\n", "10 %\n20 %\n"),
        ("Windows\r\r\n", "Windows\n"),
        (
            "bell\a, back\b\b, bare \x1b escape, \x9b control, \x7f",
            "bell, back, bare  escape,  control, ",
        ),
        ("\x1b]0;a title\a", "]0;a title"),
    ],
)
def test_control_characters_are_not_read(written: str, read: str) -> None:
    assert readable(written) == read


_REVERSING = {
    chr(0x61C),
    *map(chr, (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))),
}


def test_nothing_printable_is_acted_on_by_a_terminal() -> None:
    for character in map(chr, range(sys.maxunicode + 1)):
        acted_on = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        is_safe = not acted_on and character not in _REVERSING
        shown = character if is_safe else ascii(character)[1:-1]
        assert one_line(character) == shown
        assert printable(character) == (character if character in "\t\n" else shown)


def test_printable_text_keeps_its_lines() -> None:
    assert printable("a\tb\r\nc\rd\x1b[2Je") == "a\tb\r\nc\\rd\\x1b[2Je"
    assert one_line("a\tb\r\nc") == "a\\tb\\r\\nc"


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("", ""),
        ("one", "one"),
        ("one\ntwo\nthree\n", "two\nthree"),
        ("one\ntwo\nthree", "two\nthree"),
        ("one\n\n\n", "\n"),
        ("x" * 50, "x" * 20),
        ("short\n" + "y" * 18 + "z", "\n" + "y" * 18 + "z"),
    ],
)
def test_the_end_has_so_many_lines_and_no_more_than_so_many_characters(
    text: str, last: str
) -> None:
    assert last_lines(text, 2, most_characters=20) == last
