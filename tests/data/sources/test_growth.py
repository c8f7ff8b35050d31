"""Which reactions a gene set blocks, and genetic interactions from growth."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from cobra import Gene, Model, Reaction
from cobra.io import load_model
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.sources.growth import RESOLUTION, KnockoutRules, digenic, lethal, lost_rules, snap, trigenic, unpacked
from dglcell.graph.metabolism import enzyme_complexes
from tests.examples import examples

# Blocked reactions of many strains against cobra's evaluation of one rule at a time.


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


@examples(30)
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
    for row, lost in zip(sets, lost_rules(rules.left_of(sets), 1), strict=True):
        deleted = {rules.genes[gene] for gene in row}
        expected = [i for i, r in enumerate(model.reactions) if r.gene_reaction_rule and not r.gpr.eval(deleted)]
        assert sorted(rules.codes(*unpacked(lost)).tolist()) == expected


@examples(30)
@given(st.lists(rules, min_size=1, max_size=8), st.permutations(range(6)), st.integers(0, 2**18 - 1), st.integers(0, 6))
def test_a_reaction_is_as_strong_as_its_best_complex(
    texts: list[str], genes: list[int], numbers: int, size: int
) -> None:
    model, strengths = model_of(texts), (0.0, 0.3, 0.5, 1.0)
    rules = replace(KnockoutRules.of(model), strengths=strengths)
    chosen = [numbers // 4**place % 4 for place in range(size)]
    alleles = np.array([[4 * gene + number for gene, number in zip(genes[:size], chosen, strict=True)]], dtype=np.int32)
    left = {rules.genes[gene]: strengths[number] for gene, number in zip(genes[:size], chosen, strict=True)}
    (lost,) = lost_rules(rules.left_of(alleles), 3)
    found = rules.codes(*unpacked(lost))
    expected = {}
    for i, reaction in enumerate(model.reactions):
        strength = max(min(left.get(gene, 1.0) for gene in complex_) for complex_ in enzyme_complexes(reaction.gpr))
        if strength < 1:
            expected[i] = strength
    assert {int(code) % len(texts): strengths[code // len(texts)] for code in found} == expected


def test_a_rule_is_in_use_if_one_of_its_reactions_is() -> None:
    rules = KnockoutRules.of(model_of(["g0", "g1", "g0", ""]))
    assert rules.needs(np.array([0, 0, 1, 1], np.uint8)).tolist() == [1, 0]


def test_reactions_with_equal_rules_are_one() -> None:
    model = load_model("textbook")
    rules = KnockoutRules.of(model)
    assert len(rules.genes) == 137
    assert sum(map(len, rules.reactions)) == sum(bool(r.gene_reaction_rule) for r in model.reactions)
    assert len(rules.rules) < sum(map(len, rules.reactions))


# The mathematics of genetic interactions.


fitness = st.floats(0, 1.2)


def array(*values: float) -> tuple[np.ndarray, ...]:
    return tuple(np.array([value]) for value in values)


@given(fitness, fitness, fitness)
def test_independent_genes_do_not_interact(a: float, b: float, c: float) -> None:
    (ab, ac, bc, abc) = array(a * b, a * c, b * c, a * b * c)
    singles = array(a, b, c)
    assert digenic(ab, *singles[:2]) == pytest.approx(0, abs=1e-12)
    assert trigenic(abc, singles, (ab, ac, bc)) == pytest.approx(0, abs=1e-12)


@given(fitness, fitness, fitness, fitness, fitness)
def test_a_pair_with_an_independent_third_gene_has_no_trigenic_interaction(
    a: float, b: float, c: float, ab: float, extra: float
) -> None:
    tau = trigenic(*array(ab * c), array(a, b, c), array(ab, a * c, b * c))
    assert tau == pytest.approx(0, abs=1e-12)
    assert trigenic(*array(ab * c + extra), array(a, b, c), array(ab, a * c, b * c)) == pytest.approx(extra, abs=1e-12)


@given(st.lists(fitness, min_size=7, max_size=7), st.permutations(range(3)))
def test_tau_does_not_depend_on_the_order_of_genes(values: list[float], order: list[int]) -> None:
    singles, abc = values[:3], values[6]
    pairs = dict(zip(map(frozenset, itertools.combinations(range(3), 2)), values[3:6], strict=True))

    def tau(i: int, j: int, k: int) -> np.ndarray:
        two = array(*(pairs[frozenset(pair)] for pair in ((i, j), (i, k), (j, k))))
        return trigenic(*array(abc), array(singles[i], singles[j], singles[k]), two)  # type: ignore[arg-type]

    assert tau(*order) == pytest.approx(tau(0, 1, 2), abs=1e-12)


def test_snap_moves_only_what_is_close() -> None:
    values = np.array([0.9 * RESOLUTION, 1.1 * RESOLUTION, 1 - 0.9 * RESOLUTION, 0.5, np.nan])
    snapped = snap(values, 0.0, 1.0)
    np.testing.assert_array_equal(snapped, [0.0, values[1], 1.0, 0.5, np.nan])


def test_lethal_is_no_growth_and_missing_is_not_lethal() -> None:
    assert lethal(np.array([0.0, 5e-7, 2e-6, 1.0, np.nan])).tolist() == [True, True, False, False, False]
