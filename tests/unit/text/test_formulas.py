from __future__ import annotations

import pytest

from farm.text.formulas import with_formula, without_formula


@pytest.mark.parametrize("text", ["=1+1", "'=1+1", "''@x", "-", "+1", "\tx", "'", "", "a=b", "'a"])
def test_a_text_is_read_as_it_was_written_and_no_cell_is_a_formula(text: str) -> None:
    cell = without_formula(text)
    assert with_formula(cell) == text
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert (cell == text) is (text in ("'", "", "a=b", "'a"))
