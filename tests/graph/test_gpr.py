from __future__ import annotations

import pytest
from cobra.core.gene import GPR
from hypothesis import given
from hypothesis import strategies as st

from dglcell.errors import GraphError
from dglcell.graph.metabolism import enzyme_complexes

GENES = [f"g{i}" for i in range(7)]


def rules(depth: int = 4) -> st.SearchStrategy[str]:
    def nest(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        joined = st.tuples(st.sampled_from([" and ", " or "]), st.lists(inner, min_size=2, max_size=3))
        return joined.map(lambda pair: "(" + pair[0].join(pair[1]) + ")")

    return st.recursive(st.sampled_from(GENES), nest, max_leaves=2**depth)


def complexes(rule: str, **options: bool) -> list[set[str]]:
    return [set(term) for term in enzyme_complexes(GPR.from_string(rule), **options)]


@given(rule=rules(), knockouts=st.sets(st.sampled_from(GENES)), absorb=st.booleans())
def test_complexes_have_the_truth_value_of_the_rule(rule: str, knockouts: set[str], absorb: bool) -> None:
    parsed = GPR.from_string(rule)
    works = any(not term & knockouts for term in enzyme_complexes(parsed, absorb=absorb))
    assert works == parsed.eval(knockouts)


@given(rule=rules())
def test_absorbed_complexes_do_not_contain_each_other(rule: str) -> None:
    terms = enzyme_complexes(GPR.from_string(rule), absorb=True)
    assert not any(a < b for a in terms for b in terms)
    assert len(set(terms)) == len(terms)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("", []),
        ("a", [{"a"}]),
        ("(a or b) and c", [{"a", "c"}, {"b", "c"}]),
        ("a and (b or (c and (d or e)))", [{"a", "b"}, {"a", "c", "d"}, {"a", "c", "e"}]),
        ("b and a or a and b", [{"a", "b"}]),
        ("a or (a and b)", [{"a"}, {"a", "b"}]),
        ("YAL001C-A and Q0045", [{"Q0045", "YAL001C-A"}]),
    ],
)
def test_expansion(rule: str, expected: list[set[str]]) -> None:
    assert complexes(rule) == expected


def test_absorption_drops_the_larger_complex() -> None:
    assert complexes("a or (a and b)", absorb=True) == [{"a"}]


def test_too_many_complexes() -> None:
    rule = GPR.from_string(" and ".join(f"(a{i} or b{i})" for i in range(12)))
    assert len(enzyme_complexes(rule, limit=4096)) == 4096
    with pytest.raises(GraphError, match=r"'R1'.*too many enzyme complexes\n.*4,096 or fewer\n.*at most 4,095"):
        enzyme_complexes(rule, limit=4095, where="reaction 'R1'")


def test_other_operators_are_refused() -> None:
    rule = GPR.from_string("a and b")
    rule.body.values[1] = 3
    with pytest.raises(GraphError, match="other than AND, OR and gene names"):
        enzyme_complexes(rule)
