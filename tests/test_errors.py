"""What messages look like."""

from __future__ import annotations

from dglcell.errors import DataError, DglcellError, listing


def test_a_message_has_a_line_for_each_answer() -> None:
    error = DataError("what is wrong", got=3, expected="a word", do="mend it")
    assert isinstance(error, DglcellError)
    assert str(error) == "what is wrong\n  got:      3\n  expected: a word\n  do:       mend it"
    assert str(DataError("what is wrong", got=0)) == "what is wrong\n  got:      0"
    assert str(DataError("what is wrong")) == "what is wrong"


def test_long_lists_are_cut_and_counted() -> None:
    assert listing(range(3)) == "0, 1, 2"
    assert listing("abc", limit=3) == "a, b, c"
    assert listing(range(1500), limit=2) == "0, 1 … and 1,498 more"
