"""Changed edges as tables write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.errors import GenotypeError
from dglcell.graph.edge_targets import EdgeTarget, edge_text, read_edge_targets

NAMES = st.sampled_from(["b0008", "TALA#1+", "13dpg_c", "YAL001C", "EX_glc(e)", "a.b-c"])
RELATIONS, STRENGTHS = st.sampled_from(["physical", "catalyses"]), st.sampled_from([0.0, 0.25, 3.0])
TARGETS = st.builds(EdgeTarget, RELATIONS, NAMES, NAMES, STRENGTHS, st.booleans())


@given(st.lists(TARGETS, max_size=4), st.randoms())
def test_what_is_written_is_read_and_equal_changes_are_equal_texts(targets: list[EdgeTarget], random: object) -> None:
    written = [str(target) for target in targets]
    assert read_edge_targets("; ".join(written)) == targets
    assert edge_text(";".join(reversed(written))) == edge_text(" ; ".join(written))


def test_a_text_may_change_nothing() -> None:
    assert read_edge_targets("") == read_edge_targets("none") == read_edge_targets(" ; ") == []
    assert edge_text("") == "none"
    assert edge_text("physical:a > b : 0 ;catalyses:c<>d:1e0") == "catalyses:c<>d:1; physical:a>b"


@pytest.mark.parametrize("text", ["a>b", "physical:a", "physical:a>b>c", "physical:>b", "physical:a-b"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(GenotypeError, match=r"changed edge cannot be read\n  got: .*\n  expected: RELATION:SOURCE>"):
        read_edge_targets(f"physical:x>y; {text}")


@pytest.mark.parametrize("amount", ["-1", "half", "nan", "inf", "1e-9"])
def test_strengths_that_are_no_amounts_are_refused(amount: str) -> None:
    with pytest.raises(GenotypeError, match=rf"the strength of an edge is no amount: 'p:a>b:{amount}'\n.*'{amount}'"):
        read_edge_targets(f"p:a>b:{amount}")
