"""The in-silico screen, and growth as a column of measured strains."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cobra import Gene, Model, Reaction
from cobra.flux_analysis import double_gene_deletion, flux_variability_analysis
from cobra.io import load_model, save_json_model
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dglcell.data.columns import COMPUTED
from dglcell.data.sources import Computed, SourceConfig, Work, fba, load_source
from dglcell.data.sources.config import FbaConfig, InSilicoConfig
from dglcell.data.sources.fba import Bounds, FluxSolver, Solution
from dglcell.data.sources.growth import RESOLUTION, FbaGrowth, KnockoutRules, lethal, snap
from dglcell.data.sources.insilico import gene_sets, load_insilico
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError, DglcellError, GraphError
from dglcell.graph.cell import CellConfig
from dglcell.graph.metabolism import enzyme_complexes
from tests.examples import examples

# What the in-silico configuration refuses.


WRONG: list[tuple[dict[str, object], str]] = [
    ({"pairs": "some"}, r"`data.source.insilico.pairs` is not an amount\n.*some\n.*all, none or a positive number"),
    ({"triples": "0"}, "`data.source.insilico.triples` is not an amount"),
    ({"tolerance": 0.0}, "`data.source.insilico.tolerance` must be positive"),
    ({"singles": False, "pairs": "none", "triples": "none"}, "the in-silico screen has no strains"),
    ({"activities": [0.0, 1.5]}, r"`data.source.insilico.activities` holds a number that is no activity of a screen"),
    ({"activities": [-0.5]}, r"no activity of a screen\n  got:      -0.5\n.*0 for a deletion, or 1e-06 to 1"),
    ({"activities": [1e-9]}, "no activity of a screen"),
    ({"activities": [0.5, 0.5]}, "`data.source.insilico.activities` lists 0.5 twice"),
    ({"activities": list(np.linspace(0.1, 1, 101))}, "activities` lists too many"),
    ({"media": {"m": {"EX_o2_e": -2.0}}}, "`data.source.insilico.media.m.EX_o2_e` is no uptake"),
    ({"media": {"m": {"EX_o2": 2.0}}}, "`data.source.insilico.media.m` names no exchange reaction"),
    ({"pairs": "9317"}, r"pairs` asks for more strains than there are\n.*9,317\n.*at most 9,316 for 137 genes"),
    (
        {"pairs": "all", "media": {f"m{i}": {} for i in range(2_200)}},
        r"`data.source.insilico` asks for too many strains\n.*20,796,600 over all media",
    ),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        screen(**{"triples": "none", **options})


# Which strains a screen lists.


@given(st.integers(3, 40), st.integers(2, 3), st.integers(1, 200), st.integers(0, 9))
def test_sampled_sets_are_distinct_sets(genes: int, size: int, count: int, seed: int) -> None:
    count = min(count, math.comb(genes, size))
    sets = gene_sets(genes, size, str(count), np.random.default_rng(seed), key="k")
    assert len({tuple(row) for row in sets.tolist()}) == len(sets) == count
    assert (np.diff(sets, axis=1) > 0).all()
    assert 0 <= sets.min() <= sets.max() < genes


# The in-silico screen against plain cobra.


@pytest.fixture(scope="module")
def full() -> Strains:
    return load_insilico(InSilicoConfig(processes=1))


@pytest.fixture(scope="module")
def row_of(full: Strains) -> dict[frozenset[str], int]:
    """Genes of each strain of the full screen → its row."""
    return {frozenset(genes): row for row, genes in enumerate(full.genotypes)}


def test_fitness_equals_plain_cobra(full: Strains, row_of: dict[frozenset[str], int]) -> None:
    model = load_model("textbook")
    model.tolerance = 1e-9
    wild = model.slim_optimize()
    rng = np.random.default_rng(1)
    fitness = full.phenotypes["fitness"]
    # Half of the sample where deletions hurt without killing, since most strains are like the wild type.
    hurt, strains = np.flatnonzero((fitness > 0) & (fitness < 1)), [*row_of]
    for s in [*range(137), *rng.choice(len(full), 150), *rng.choice(hurt, 150)]:
        with model:
            for gene in strains[s]:
                model.genes.get_by_id(gene).knock_out()
            expected = model.slim_optimize(error_value=0.0) / wild
        assert fitness[s] == pytest.approx(expected, abs=1e-7), strains[s]


def test_growth_returns_with_the_loss_of_a_reaction_that_the_model_forces(tmp_path: Path) -> None:
    model, path = Model("forced"), str(tmp_path / "forced.json")
    rows = ("--> a", 0, ""), ("a --> b", 2, "g1"), ("b -->", 0, "g2"), ("a -->", 0, "g3 or g4")
    for i, (text, least, rule) in enumerate(rows):
        model.add_reactions([reaction := Reaction(f"r{i}")])
        reaction.build_reaction_from_string(text)
        reaction.bounds, reaction.gene_reaction_rule = (least, 10), rule
    model.objective = "r3"
    save_json_model(model, path)
    table = load_insilico(InSilicoConfig(path, triples="none", processes=1))
    found = dict(zip(map(frozenset, table.genotypes), table.phenotypes["fitness"].tolist(), strict=True))
    assert found[frozenset(("g1", "g2"))] == 1.25
    by_cobra = double_gene_deletion(model, processes=1).fillna(0)
    assert found == pytest.approx(dict(zip(map(frozenset, by_cobra["ids"]), by_cobra["growth"] / 8, strict=True)))


def test_interactions_follow_from_the_listed_fitness(full: Strains, row_of: dict[frozenset[str], int]) -> None:
    def f(*genes: str) -> float:
        return float(full.phenotypes["fitness"][row_of[frozenset(genes)]])

    epsilon, tau = full.phenotypes["digenic_interaction"], full.phenotypes["trigenic_interaction"]
    sizes, strains = full.num_deletions, [*row_of]
    np.testing.assert_array_equal(np.isfinite(epsilon), sizes == 2)
    np.testing.assert_array_equal(np.isfinite(tau), sizes == 3)
    assert np.count_nonzero(np.nan_to_num(tau)) > 10_000
    rng = np.random.default_rng(2)
    for s in rng.choice(np.flatnonzero(np.nan_to_num(tau)), 200):
        i, j, k = strains[s]
        one = [f(g) for g in (i, j, k)]
        two = [f(*pair) for pair in ((i, j), (i, k), (j, k))]
        # The polynomial in fitness that the definition expands to.
        expected = f(i, j, k) - two[0] * one[2] - two[1] * one[1] - two[2] * one[0] + 2 * math.prod(one)
        assert tau[s] == pytest.approx(expected, abs=2e-6)
    for s in np.flatnonzero(sizes == 2)[::50]:
        i, j = strains[s]
        assert epsilon[s] == pytest.approx(f(i, j) - f(i) * f(j), abs=2e-6)


def test_few_linear_programs_are_solved_and_provenance_says_by_what(full: Strains) -> None:
    provenance, counts = full.provenance, full.provenance.counts
    ways = ("linear_programs", "same_blocked_reactions", "subset_optimum")
    assert sum(counts[way] for way in ways) == len(full) + 1  # and the wild type
    assert counts["linear_programs"] < 1_000
    assert counts["time_outs"] == counts["failures"] == 0
    assert provenance.source == "insilico"
    assert len(provenance.files["textbook.xml.gz"]) == 64
    assert provenance.parameters["solver"].startswith("GLPK")
    assert provenance.parameters["tolerance"] == 1e-9
    assert provenance.parameters["wild_type_growth"] == pytest.approx(0.8739215, abs=1e-6)


def test_a_sampled_screen_agrees_with_the_full_one(full: Strains, row_of: dict[frozenset[str], int]) -> None:
    sample = load_insilico(InSilicoConfig(singles=False, pairs="300", triples="500", seed=3, processes=1))
    assert np.bincount(sample.num_deletions).tolist() == [0, 0, 300, 500]
    rows = [row_of[frozenset(genes)] for genes in sample.genotypes]
    for name, values in sample.phenotypes.items():
        np.testing.assert_allclose(values, full.phenotypes[name][rows], atol=1e-6)


def test_without_pairs_or_triples_there_are_no_interaction_columns() -> None:
    table = load_insilico(InSilicoConfig(pairs="none", triples="none"))
    assert list(table.phenotypes) == ["fitness"]
    assert len(table) == 137
    assert lethal(table.phenotypes["fitness"]).sum() == 7


def test_too_many_strains_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"k` asks for too many strains\n.*423,883,460\n.*at most 20,000,000"):
        gene_sets(1_366, 3, "all", np.random.default_rng(0), key="k")


def test_a_model_that_does_not_grow_is_refused(tmp_path: Path) -> None:
    model = load_model("textbook")
    model.reactions.EX_glc__D_e.lower_bound = 0
    model.reactions.ATPM.lower_bound = 0
    save_json_model(model, tmp_path / "starved.json")
    with pytest.raises(DataError, match="the wild type does not grow"):
        load_insilico(InSilicoConfig(model=str(tmp_path / "starved.json")))


@pytest.mark.raw
@pytest.mark.slow
def test_yeast_single_deletions(raw: Path) -> None:
    config = InSilicoConfig(model="metabolism/yeast-GEM_9.0.2.mat", pairs="none", triples="none")
    table = load_insilico(config, str(raw))
    fitness = table.phenotypes["fitness"]
    assert lethal(fitness).sum() == 192
    reference = pd.read_csv(raw / "metabolism" / "yeast9_single_deletion_fba.csv.gz").set_index("gene")
    expected = reference["relative"].fillna(0).loc[[gene for [gene] in table.genotypes]]
    assert len(expected) == 1_161
    # The reference has six decimals.
    np.testing.assert_allclose(fitness, expected, atol=1e-6)


MEDIA: dict[str, dict[str, float]] = {
    "own": {},
    "anaerobic": {"EX_o2_e": 0.0},
    "pyruvate": {"EX_glc__D_e": 0.0, "EX_pyr_e": 20.0},
}
ACTIVITIES = [0.3, 0.0, 0.05, 1.0, 0.7]


def screen(**options: object) -> Strains:
    config = InSilicoConfig(**{"processes": 1, "triples": "none", **options})  # type: ignore[arg-type]
    return load_source(SourceConfig(insilico=config))


@pytest.fixture(scope="module")
def table() -> Strains:
    return screen(pairs="300", triples="60", activities=ACTIVITIES, media=MEDIA)


def listed(table: Strains) -> list[tuple[dict[str, float], str, float]]:
    """Return gene → activity, medium and fitness of every strain."""
    return list(zip(table.changes, table.shown("medium"), table.phenotypes["fitness"].tolist(), strict=True))  # type: ignore[arg-type]


def ranges(model: Model) -> dict[str, tuple[float, float]]:
    """Return the largest backward and forward flux of each reaction that the wild type can need."""
    optimal, at_all = (flux_variability_analysis(model, fraction_of_optimum=part, processes=1) for part in (1.0, 0.0))
    return {
        reaction.id: tuple(
            next((flux for frame in (optimal, at_all) if (flux := sign * frame.loc[reaction.id, column]) > 1e-7), 0.0)
            for column, sign in (("minimum", -1), ("maximum", 1))
        )
        for reaction in model.reactions
    }


def weaken(model: Model, left: Mapping[str, float], needed: Mapping[str, tuple[float, float]]) -> None:
    for reaction in model.reactions:
        complexes = enzyme_complexes(reaction.gpr)
        activity = max((min(left.get(gene, 1.0) for gene in genes) for genes in complexes), default=1.0)
        if activity < 1:
            backward, forward = needed[reaction.id]
            reaction.bounds = (
                max(reaction.lower_bound, -activity * backward),
                min(reaction.upper_bound, activity * forward),
            )


def test_fitness_equals_cobra_with_bounds_set_by_hand(table: Strains) -> None:
    model = load_model("textbook")
    model.tolerance = 1e-9
    reference = model.slim_optimize()
    needed = {}
    for name, changes in MEDIA.items():
        with model:
            model.medium = {**model.medium, **changes}
            needed[name] = ranges(model)
    strains = listed(table)
    fitness = np.array([value for *_, value in strains])
    between = (fitness > 0) & (fitness < 1)
    rng = np.random.default_rng(0)
    sample = {*rng.choice(len(strains), 80), *rng.choice(np.flatnonzero(between), 80)}
    for s in sample:
        left, medium, found = strains[s]
        with model:
            model.medium = {**model.medium, **MEDIA[medium]}
            weaken(model, left, needed[medium])
            expected = model.slim_optimize(error_value=0.0) / reference
        assert found == pytest.approx(expected, abs=2e-6), (left, medium)


def test_the_table_has_every_strain_in_every_medium_and_the_wild_type(table: Strains) -> None:
    strains = listed(table)
    third = len(strains) // 3
    assert third == 1 + 137 * 5 + 300 + 60
    assert [medium for _, medium, _ in strains[::third]] == list(MEDIA)
    by_medium = [[left for left, _, _ in strains[i * third : (i + 1) * third]] for i in range(3)]
    assert by_medium[0] == by_medium[1] == by_medium[2]
    assert by_medium[0][0] == {}
    singles = {(gene, round(activity, 6)) for left in by_medium[0][1:686] for gene, activity in left.items()}
    assert singles == {(gene, activity) for gene in table.names for activity in ACTIVITIES}
    drawn = [activity for left in by_medium[0][686:] for activity in left.values()]
    assert np.bincount(np.searchsorted(sorted(ACTIVITIES), np.round(drawn, 6))).min() > 100
    assert list(table.phenotypes) == ["fitness"]
    counts = table.provenance.counts
    assert counts["strains"] == len(table)
    assert [counts[kind] for kind in ("wild_types", "singles", "pairs", "triples")] == [3, 3 * 685, 900, 180]
    ways = ("linear_programs", "same_blocked_reactions", "subset_optimum")
    assert sum(counts[way] for way in ways) > len(table)
    assert table.provenance.parameters["growth_in_media"]["own"] == pytest.approx(0.8739215, abs=1e-6)


def test_activity_0_is_the_deletion_and_1_the_wild_type(table: Strains) -> None:
    deletions = screen(pairs="100")
    zero = screen(pairs="100", activities=[0.0])
    assert np.array_equal(zero.targets, deletions.targets)
    assert np.array_equal(zero.phenotypes["fitness"], deletions.phenotypes["fitness"])
    assert zero.activities is not None
    assert not zero.activities.any()
    alone = {
        gene: fitness
        for [gene], fitness in zip(deletions.genotypes[:137], deletions.phenotypes["fitness"][:137], strict=True)
    }
    wild = {medium: fitness for left, medium, fitness in listed(table) if not left}
    checked = 0
    for left, medium, fitness in listed(table):
        if set(left.values()) == {1.0}:
            assert fitness == wild[medium]
        elif len(left) == 1 and medium == "own" and 0.0 in left.values():
            assert fitness == alone[next(iter(left))]
            checked += 1
    assert checked == 137
    assert (screen(pairs="20", activities=[1.0]).phenotypes["fitness"] == 1).all()


def test_media_with_deletions_only() -> None:
    table, plain = screen(pairs="50", media=MEDIA), screen(pairs="50")
    assert table.activities is None
    assert np.array_equal(table.phenotypes["fitness"][1 : len(table) // 3], plain.phenotypes["fitness"])
    assert np.array_equal(table.targets[: len(plain.targets)], plain.targets)
    assert list(table.phenotypes) == ["fitness"]


def test_result_does_not_depend_on_the_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fba, "PROBE", 5)
    monkeypatch.setattr(fba, "WORTHWHILE_SECONDS", 0.0)
    options = {"pairs": "40", "activities": [0.0, 0.4], "media": {"anaerobic": MEDIA["anaerobic"]}}
    assert screen(**options).sha256 == screen(**options, processes=2).sha256


def test_what_the_solver_cannot_tell_is_left_out_and_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = load_model("textbook")
    lost = model.reactions.index("ENO")  # of one gene, which has no other reaction
    capacity = FluxSolver.capacity
    monkeypatch.setattr(
        FluxSolver, "capacity", lambda of, j, sign: float("nan") if j == lost else capacity(of, j, sign)
    )
    with caplog.at_level(logging.WARNING, logger="dglcell"):
        table = screen(pairs="none", activities=[0.0, 0.5])
    assert not np.isnan(table.phenotypes["fitness"]).any()
    assert len(table) == 2 * 137 - 1 == table.provenance.counts["strains"]
    of_eno = [gene for gene, left in zip(table.genotypes, table.left().tolist(), strict=True) if left == 0.5]
    assert ["b2779"] in table.genotypes
    assert ["b2779"] not in of_eno
    assert table.provenance.counts["failures"] == 1
    assert "the solver found no capacity of ENO: strains that weaken them have no fitness" in caplog.text
    assert "0 linear programs timed out and 1 failed; left out, because its fitness is not known: 1" in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"EX_glc__D_e": 0.0}, "the wild type in medium 'm' has no optimal growth"),
        ({"EX_nh4_e": 0.0}, r"the wild type in medium 'm' does not grow\n(.*\n)*.*leave the medium out"),
    ],
)
def test_a_medium_without_growth_is_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        screen(pairs="none", media={"m": changes})


# What is left of reactions, and growth as a column of measured strains.


GENES = [f"g{i}" for i in range(6)]
RULES = st.recursive(
    st.sampled_from(GENES),
    lambda inner: st.builds(
        lambda parts, word: f"({f' {word} '.join(parts)})",
        st.lists(inner, min_size=2, max_size=4),
        st.sampled_from(["and", "or"]),
    ),
    max_leaves=10,
)


@examples(30)
@given(st.lists(RULES, min_size=1, max_size=8), st.dictionaries(st.sampled_from(GENES), st.sampled_from([0, 0.25, 1])))
def test_a_reaction_is_as_strong_as_its_best_complex(texts: list[str], changed: dict[str, float]) -> None:
    model = Model("random")
    model.genes += [Gene(name) for name in GENES]
    for i, text in enumerate(texts):
        reaction = Reaction(f"r{i}")
        model.add_reactions([reaction])
        reaction.gene_reaction_rule = text
    rules = KnockoutRules.of(model)
    genes = np.array([rules.genes.index(gene) for gene in changed], dtype=np.int64)
    (left,) = rules.left(1, np.zeros_like(genes), genes, np.array([*changed.values()], np.float32))
    found = dict(enumerate(left[rules.rule_of].tolist()))
    assert found == {
        i: max(min(changed.get(gene, 1.0) for gene in genes) for genes in enzyme_complexes(reaction.gpr))
        for i, reaction in enumerate(model.reactions)
    }


def test_snap_moves_only_what_is_close() -> None:
    values = np.array([0.9 * RESOLUTION, 1.1 * RESOLUTION, 1 - 0.9 * RESOLUTION, 0.5, np.nan])
    np.testing.assert_array_equal(snap(values, 0.0, 1.0), [0.0, values[1], 1.0, 0.5, np.nan])


# Growth as a column of measured strains.


SUGARS = {"own": {}, "fructose": {"EX_glc__D_e": 0.0, "EX_fru_e": 10.0}}
WORK = Work()


def simulator(**config: object) -> FbaGrowth:
    return FbaGrowth(FbaConfig(**{"model": "textbook", "media": SUGARS, "processes": 1, **config}))  # type: ignore[arg-type]


def growth(strains: Strains, **config: object) -> NDArray[np.float32]:
    return simulator(**config).compute(strains, WORK)


def own_growth() -> float:
    return float(load_model("textbook").slim_optimize())


def test_it_is_what_the_screen_computes_in_whatever_batches(caplog: pytest.LogCaptureFixture) -> None:
    options = {"pairs": "300", "triples": "60", "activities": [0.3, 0.0, 0.05, 0.7], "media": SUGARS}
    strains = screen(**options)
    found, batches = growth(strains), simulator()
    np.testing.assert_allclose(found / own_growth(), strains.phenotypes["fitness"], atol=1e-6)
    assert len(np.unique(found)) > 50
    middle = len(strains) // 2
    parts = [batches.compute(part, WORK) for part in (strains.slice(0, middle), strains.slice(middle, len(strains)))]
    np.testing.assert_allclose(np.concatenate(parts), found, atol=1e-6)
    caplog.set_level(logging.INFO)
    caplog.clear()
    batches.compute(strains, WORK)
    assert "linear programs" not in caplog.text  # nothing is left to solve


def test_a_strain_without_an_answer_grows_as_the_wild_type(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    solve = FluxSolver.solve

    def give_up(of: FluxSolver, bounds: Bounds) -> Solution:
        return Solution(float("nan"), timed_out=True) if len(bounds.reactions) else solve(of, bounds)

    monkeypatch.setattr(FluxSolver, "solve", give_up)
    found = growth(Strains.from_names([["b2779"], ["b2779"], []]), media={})
    np.testing.assert_allclose(found, own_growth(), atol=1e-6)
    assert "solver gave no answer to 1 linear program, whose strains have the growth of the wild type" in caplog.text


def test_names_of_genes_and_genes_that_the_model_lacks() -> None:
    strains = Strains.from_names([["pfkA"], ["b3916"], ["mystery"], ["B2779"], []])
    found = growth(strains, media={}) / own_growth()
    model = load_model("textbook")
    model.genes.get_by_id("b2779").knock_out()
    eno = model.slim_optimize() / own_growth()
    np.testing.assert_allclose(found, [found[1], found[1], 1.0, eno, 1.0], atol=1e-6)


def test_media_may_be_numbers() -> None:
    covariates = {"acetate": [0.0, 1.0, 0.5], "lactate": [1.0, 1.0, 0.0]}
    strains = Strains.from_names([[], [], []], covariates=covariates)
    uptakes = {"acetate": {"EX_ac_e": 20.0}, "lactate": {"EX_lac__D_e": 10.0}}
    found = growth(strains, media={}, base={"EX_glc__D_e": 0.0}, uptakes=uptakes)
    for value, acetate, lactate in zip(found, (0, 20, 10), (10, 10, 0), strict=True):
        model = load_model("textbook")
        for exchange, uptake in (("EX_glc__D_e", 0), ("EX_ac_e", acetate), ("EX_lac__D_e", lactate)):
            model.reactions.get_by_id(exchange).lower_bound = -uptake
        assert value == pytest.approx(model.slim_optimize(), abs=1e-5)


def test_a_medium_that_does_not_name_an_exchange_leaves_it_as_the_model_has_it(tmp_path: Path) -> None:
    model = load_model("textbook")
    model.reactions.EX_ac_e.lower_bound = 5  # which the cell has to secrete
    save_json_model(model, path := str(tmp_path / "secretes.json"))
    strains = Strains.from_names([[], []], covariates={"medium": ["own", "free"]})
    media: dict[str, dict[str, float]] = {"own": {}, "free": {"EX_ac_e": 0.0}}
    expected = model.slim_optimize(), own_growth()
    np.testing.assert_allclose(growth(strains, model=path, media=media), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"media": {"own": {}}}, DataError, "a medium of strains is not described\n.*fructose"),
        ({"media": {"own": {}, "fructose": {"EX_none": 1.0}}}, ConfigError, "names no exchange reaction"),
        ({"base": {"EX_none": 1.0}}, ConfigError, "`data.fba.base` names no exchange reaction"),
        ({"uptakes": {"celsius": {"EX_ac_e": 1.0}}}, DataError, "no such covariate of numbers"),
        ({"model": "gone.xml"}, GraphError, "`fba_growth` is computed by a metabolic model that cannot be read here"),
    ],
)
def test_what_cannot_be_computed_says_why(config: dict[str, object], error: type[DglcellError], message: str) -> None:
    strains = Strains.from_names([["b0008"], []], covariates={"medium": ["own", "fructose"]})
    with pytest.raises(error, match=message):
        growth(strains, **config)


def test_the_column_is_a_covariate_and_says_how_it_was_made() -> None:
    computed = Computed.of(FbaConfig(processes=1), {}, CellConfig(model="textbook"))
    strains = Strains.from_names([["b0008"], ["b0720"]], phenotypes={"growth": [1.0, 0.5]})
    made = computed.add(strains, WORK)
    assert (made.covariates, made.computed) == ({"fba_growth": ()}, ("fba_growth",))
    assert made.provenance.parameters[COMPUTED]["fba_growth"]["model"] == "textbook"
    assert "textbook.xml.gz" in made.provenance.files
    assert made.sha256 != strains.sha256
    with pytest.raises(DataError, match="have a column 'fba_growth'"):
        computed.add(made, WORK)
    with pytest.raises(ConfigError, match=r"`data\.fba` needs a metabolic model"):
        Computed.of(FbaConfig(), {}, CellConfig())
