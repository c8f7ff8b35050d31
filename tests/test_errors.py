"""What messages look like."""

from __future__ import annotations

from dglcell.errors import DataError, DglcellError, and_more, count, did_you_mean, listing


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


def test_counts_of_one_are_singular() -> None:
    assert [count(number, "row") for number in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
    assert [and_more(number, "row") for number in (0, 1, 2)] == ["", " (and 1 more row)", " (and 2 more rows)"]


def test_close_names_are_suggested_in_any_case() -> None:
    assert did_you_mean("fitnes", ["Fitness", "growth"]) == "did you mean Fitness?"
    assert did_you_mean("RANDOM", ["random", "none"]) == "did you mean random?"
    assert did_you_mean("x", ["random"], "see the list") == "see the list"
