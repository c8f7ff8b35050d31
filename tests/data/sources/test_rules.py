"""Blocked reactions of many strains against cobra's evaluation of one rule at a time."""

from __future__ import annotations

import numpy as np
from cobra import Gene, Model, Reaction
from cobra.io import load_model
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.data.sources.growth import KnockoutRules

GENES = [f"g{i}" for i in range(6)]


def join(parts: list[str], word: str) -> str:
    return "(" + f" {word} ".join(parts) + ")"


rules = st.recursive(
    st.sampled_from(GENES),
    lambda inner: st.builds(join, st.lists(inner, min_size=2, max_size=4), st.sampled_from(["and", "or"])),
    max_leaves=10,
)


def model_of(texts: list[str]) -> Model:
    model = Model("random")
    model.genes += [Gene(name) for name in GENES]
    for i, text in enumerate(texts):
        reaction = Reaction(f"r{i}")
        model.add_reactions([reaction])
        reaction.gene_reaction_rule = text
    return model


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(rules, st.just("")), min_size=1, max_size=12),
    st.lists(st.permutations(range(6)), min_size=1, max_size=5),
    st.integers(0, 6),
)
def test_blocked_reactions_are_those_whose_rule_cobra_finds_false(
    texts: list[str], orders: list[list[int]], size: int
) -> None:
    model = model_of(texts)
    rules = KnockoutRules.of(model)
    sets = np.array([order[:size] for order in orders], dtype=np.int32).reshape(len(orders), size)
    for row, packed in zip(sets, rules.blocked(sets), strict=True):
        deleted = {rules.genes[gene] for gene in row}
        expected = [i for i, r in enumerate(model.reactions) if r.gene_reaction_rule and not r.gpr.eval(deleted)]
        assert sorted(rules.reactions_of(packed).tolist()) == expected


def test_a_rule_is_in_use_if_one_of_its_reactions_is() -> None:
    rules = KnockoutRules.of(model_of(["g0", "g1", "g0", ""]))
    active = np.array([False, False, True, True])
    assert sorted(rules.reactions_of(rules.pack(active)).tolist()) == [0, 2]


def test_reactions_with_equal_rules_share_a_bit() -> None:
    model = load_model("textbook")
    rules = KnockoutRules.of(model)
    assert len(rules.genes) == 137
    assert sum(map(len, rules.reactions)) == sum(bool(r.gene_reaction_rule) for r in model.reactions)
    assert len(rules.rules) < sum(map(len, rules.reactions))
