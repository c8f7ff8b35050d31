"""Kernel ridges, and baselines of lost reactions: they equal the solution of the whole system, where they apply."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import cobra
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dglcell import load_cell
from dglcell.baselines import kernel_ridge, problem, simple
from dglcell.baselines.fit import ALL_BASELINES, fit_families, load_models, save_models
from dglcell.baselines.kernel_ridge import (
    ADDITIVE,
    KernelRidge,
    ReactionKernelRidge,
    fit_kernel_ridge,
    fit_reaction_kernel,
)
from dglcell.baselines.problem import (
    ANY,
    DELETIONS,
    MORE,
    Baseline,
    GeneSimilarity,
    Problem,
    Reactions,
    gene_similarity,
    in_words,
)
from dglcell.baselines.simple import UntrainedBound
from dglcell.data.columns import covariate_columns
from dglcell.data.strains import Strains
from dglcell.files.untrusted import UnreadableError
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import CATALYSES, GENE, REACTION, Edges, Relation, gene_relation
from dglcell.graph.vocabulary import Vocabulary
from dglcell.metrics import regression_metrics
from dglcell.models.terms.link import MeasuredStrains
from dglcell.perturbation.genotype import GenotypeBatch
from tests.baselines.invented import low_rank_pairs, pairs_of, problem_of, strains_of, unlike


def plain_covariance(model: KernelRidge, left: Strains, right: Strains) -> NDArray[np.float64]:
    """Pair by pair, from the kernel between genes."""
    kernel = np.zeros((len(model.matrix),) * 2)
    kernel[:, model.genes] = model.matrix

    def sets(strains: Strains) -> list[list[int]]:
        genes = strains.targets.tolist()
        return [genes[strains.offsets[i] : strains.offsets[i + 1]] for i in range(len(strains))]

    found = np.zeros((len(left), len(right)))
    for (i, one), (j, other) in itertools.product(enumerate(sets(left)), enumerate(sets(right))):
        found[i, j] = ADDITIVE * sum(kernel[a, c] for a in one for c in other)
        for (a, b), (c, d) in itertools.product(itertools.combinations(one, 2), itertools.combinations(other, 2)):
            found[i, j] += (kernel[a, c] * kernel[b, d] + kernel[a, d] * kernel[b, c]) / 2
    return found


def fitted(
    strains: Strains, y: NDArray[np.float64], similarity: GeneSimilarity, profiles: float,
    penalties: tuple[float, ...], spreads: tuple[float, ...] = (0.0,),
) -> list[KernelRidge]:  # fmt: skip
    problem = problem_of(strains, y, similarity=similarity)
    return list(fit_kernel_ridge(problem, profiles, penalties, spreads))


def alike(rng: np.random.Generator, used: NDArray[np.int64]) -> GeneSimilarity:
    """Return a similarity of ten genes to some."""
    factor = rng.random((10, 6))
    return GeneSimilarity(used, (factor @ factor.T / 6).astype(np.float32)[:, used])


@pytest.mark.parametrize("profiles", [0.0, 1.0])
def test_it_solves_the_whole_system_for_every_penalty(profiles: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_ridge, "RESIDUAL", 1e-6)
    rng = np.random.default_rng(0)
    used = np.array([1, 2, 4, 5, 7, 8])
    genotypes = [rng.permutation(used)[: rng.integers(1, 4)].tolist() for _ in range(40)]
    strains, y = strains_of(genotypes, 10), rng.normal(2, 1, 30)
    train, test = strains.take(np.arange(30)), strains.take(np.arange(30, 40))
    for model in fitted(train, y, alike(rng, used), profiles, (5.0, 0.5)):
        system = plain_covariance(model, train, train) + model.penalty * np.eye(30)
        coefficients = np.linalg.solve(system, y - y.mean())
        expected = y.mean() + plain_covariance(model, test, train) @ coefficients
        np.testing.assert_allclose(model.predict(test), expected, atol=2e-5)


def test_pairs_of_a_new_gene_spread_as_those_of_similar_genes() -> None:
    pairs, _ = low_rank_pairs(0, genes=40)
    strong = np.arange(40) % 2 == 0
    rng = np.random.default_rng(3)
    factor = rng.normal(size=(40, 2)) * np.where(strong, 3.0, 0.3)[:, None]
    y = (factor[pairs[:, 0]] * factor[pairs[:, 1]]).sum(1)
    alike = (0.5 * (strong[:, None] == strong) + 0.5 * np.eye(40)).astype(np.float32)
    new = np.arange(4)
    train = pairs_of(pairs[~np.isin(pairs, new).any(1)], 40)
    similarity = GeneSimilarity(np.arange(4, 40), alike[:, 4:])
    usual, similar = fitted(train, y[~np.isin(pairs, new).any(1)], similarity, 0.0, (1.0,), (0.0, 1.0))
    np.testing.assert_array_equal(similar.matrix[4:], usual.matrix[4:])
    np.testing.assert_array_equal(similar.coefficients, usual.coefficients)
    ratio = similar.matrix[new].sum(1) / usual.matrix[new].sum(1)
    assert (ratio[strong[:4]] > 1).all()
    assert (ratio[~strong[:4]] < 1).all()


def test_profiles_of_the_training_part_say_which_genes_are_alike() -> None:
    pairs, y = low_rank_pairs(0)
    train, test = pairs_of(pairs[:1200], 60), pairs_of(pairs[1200:], 60)
    (model,) = fitted(train, y[:1200], unlike(60), 1.0, (0.1,))
    assert regression_metrics(model.predict(test), y[1200:])["pearson"] > 0.9


def test_a_large_table_has_landmarks_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, y = low_rank_pairs(0, genes=40)
    train, test = pairs_of(pairs[:600], 40), pairs_of(pairs[600:], 40)
    monkeypatch.setattr(kernel_ridge, "RESIDUAL", 1e-6)
    (exact,) = fitted(train, y[:600], unlike(40), 1.0, (0.1,))
    monkeypatch.setattr(kernel_ridge, "MOST_OPERATIONS", 0)
    (whole,) = fitted(train, y[:600], unlike(40), 1.0, (0.1,))
    np.testing.assert_allclose(whole.predict(test), exact.predict(test), atol=2e-3)
    monkeypatch.setattr(kernel_ridge, "PAIR_LANDMARKS", 300)
    monkeypatch.setattr(kernel_ridge, "MOST_STRAINS", 500)
    (few,) = fitted(train, y[:600], unlike(40), 1.0, (0.1,))
    assert "(penalty 0.1, 300 landmarks of a sample of 500 of 600 strains, profiles 1, spread 0)" in in_words("", few)
    assert len(few.coefficients) == 300
    assert regression_metrics(few.predict(test), y[600:])["pearson"] > 0.7


@pytest.mark.parametrize("scale", [1e-24, 1e20])
def test_profiles_do_not_depend_on_the_units(scale: float) -> None:
    pairs, y = low_rank_pairs(0, genes=12)
    strains = pairs_of(pairs, 12)
    (one,) = fitted(strains, y, unlike(12), 1.0, (0.1,))
    (other,) = fitted(strains, y * scale, unlike(12), 1.0, (0.1,))
    assert other.predict(strains) / scale == pytest.approx(one.predict(strains), rel=1e-3, abs=1e-3)


def cell_of(num_genes: int, relations: dict[Relation, list[tuple[int, int]]], reactions: int = 0) -> CellGraph:
    vocabularies = {GENE: Vocabulary.of(f"g{i:04}" for i in range(num_genes))}
    if reactions:
        vocabularies[REACTION] = Vocabulary.of(f"r{i}" for i in range(reactions))
    edges = {name: Edges(*np.array(pairs, np.int64).T) for name, pairs in relations.items()}
    return CellGraph.assemble(vocabularies, edges)


def plain_similarity(num_genes: int, networks: list[list[tuple[int, int]]]) -> np.ndarray:
    total = np.zeros((num_genes, num_genes))
    for pairs in networks:
        links = np.zeros((num_genes, num_genes))
        for a, b in pairs:
            links[a, b] = links[b, a] = a != b
        walk = links / np.maximum(links.sum(1, keepdims=True), 1)
        profile = walk + 0.8 * walk @ walk + 0.64 * walk @ walk @ walk
        length = np.linalg.norm(profile, axis=1)
        cosine = profile @ profile.T / np.maximum(np.outer(length, length), 1e-30)
        total += cosine**2
    scale = np.sqrt(np.maximum(total.diagonal(), 1))
    return total / np.outer(scale, scale)


def test_it_is_the_sum_of_squared_cosines_of_walks() -> None:
    rng = np.random.default_rng(0)
    networks = [[(int(a), int(b)) for a, b in rng.integers(0, 20, (size, 2))] for size in (25, 40)]
    cell = cell_of(22, {gene_relation("one"): networks[0], gene_relation("two"): networks[1]})
    genes = np.array([3, 21, 7, 7, 12, 0])
    found = gene_similarity(cell, genes)
    assert found.genes.tolist() == [0, 3, 7, 12, 21]
    np.testing.assert_allclose(found.matrix, plain_similarity(22, networks)[:, found.genes], atol=1e-6)
    assert not found.matrix[21].any(), "gene 21 has no neighbour"


def test_genes_of_a_metabolic_model_are_linked_by_their_reactions() -> None:
    cell = cell_of(5, {CATALYSES: [(0, 0), (1, 0), (2, 0), (3, 1)]}, reactions=2)
    found = gene_similarity(cell, np.arange(5)).matrix
    np.testing.assert_allclose(found, plain_similarity(5, [[(0, 1), (0, 2), (1, 2)]]), atol=1e-6)


def test_a_relation_that_follows_from_the_others_does_not_count() -> None:
    links = {gene_relation("one"): [(0, 1), (1, 2)]}
    more = {gene_relation(name): [(0, 3), (2, 3)] for name in ("similar", "similar_one", "similar_terms")}
    with_similar = cell_of(4, {**links, **more})
    sources = {"one": {"relations": ["one"]}, "terms": {"relations": [], "sets": {"source": "go_slim_sgd"}}}
    with_similar.provenance["config"] = {"similarity": {"sources": sources}}
    links[gene_relation("terms")] = [(0, 3), (2, 3)]  # sets are known of nothing else
    np.testing.assert_array_equal(
        gene_similarity(with_similar, np.arange(4)).matrix, gene_similarity(cell_of(4, links), np.arange(4)).matrix
    )


def test_cosines_of_many_genes_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    cell = cell_of(60, {gene_relation("one"): [(int(a), int(b)) for a, b in rng.integers(0, 60, (90, 2))]})
    exact = gene_similarity(cell, np.arange(60)).matrix
    monkeypatch.setattr(problem, "MOST_EXACT", 10)
    estimated = gene_similarity(cell, np.arange(60)).matrix
    assert np.abs(estimated - exact).max() < 0.15
    np.testing.assert_array_equal(estimated, gene_similarity(cell, np.arange(60)).matrix)


CELL = load_cell("quickstart")


def growth(strains: int, seed: int = 0) -> Problem:
    """Pairs of the genes of *E. coli* core, whose effects multiply."""
    genes, rng = len(CELL.genes), np.random.default_rng(seed)
    effects = rng.uniform(0.5, 1, genes)
    pairs = rng.permutation(np.stack(np.triu_indices(genes, 1), axis=1))[: 2 * strains]
    y = effects[pairs].prod(1)
    train, validation = pairs_of(pairs[:strains], genes), pairs_of(pairs[strains:], genes)
    return replace(problem_of(train, y[:strains], validation, y[strains:]), reactions=Reactions(CELL))


def again(models: dict[str, Baseline], folder: Path) -> dict[str, Baseline]:
    """Return the models after they were in a file, which is the same when it is written again."""
    path, other = folder / "baselines.npz", folder / "again.npz"
    save_models(path, {"growth": models}, {"split": "of this run"})
    found, about = load_models(path, CELL)
    assert about == {"split": "of this run"}
    save_models(other, found, about)
    with np.load(path) as first, np.load(other) as second:
        assert first.files == second.files
        for name in first.files:
            np.testing.assert_array_equal(first[name], second[name])
    return found["growth"]


def check(problem: Problem, expected: set[str], folder: Path) -> None:
    models = fit_families(problem)
    assert expected <= models.keys()
    for name, model in again(models, folder).items():
        assert repr(model) == repr(models[name])
        strains = problem.validation
        np.testing.assert_array_equal(model.predict(strains), models[name].predict(strains), err_msg=name)


def test_what_is_read_predicts_the_same(tmp_path: Path) -> None:
    of_deletions = {name for name, family in ALL_BASELINES.items() if family.about in (ANY, DELETIONS)}
    check(growth(300), of_deletions, tmp_path)


def test_baselines_of_activities_and_media_are_kept(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    genotypes = [[number % 12, *([12] if number % 3 == 0 else [])] for number in range(240)]
    strains = strains_of(genotypes, 13)
    media = covariate_columns({"medium": np.tile(["a", "b"], 120), "dose": draw.random(240), "hours": draw.random(240)})
    activities = draw.uniform(0.05, 0.95, len(strains.targets)).astype(np.float32)
    strains = strains.with_(activities=activities, columns=media)
    y = draw.random(240)
    train, validation = np.arange(120), np.arange(120, 240)
    problem = Problem(strains.take(train), strains.take(validation), y[train], y[validation], lambda: unlike(13))
    check(problem, {name for name, family in ALL_BASELINES.items() if family.about == MORE}, tmp_path)


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "baselines.npz"
    for content in (b"", b"PK", b"nothing of the kind" * 10):
        path.write_bytes(content)
        with pytest.raises(UnreadableError):
            load_models(path, CELL)
    wrong = (["Strains", {}], ["TrainingMean", {}], ["TrainingMean", {"mean": "1"}], ["MeanOfAll", {"mean": 1.0}])
    for model in wrong:
        np.savez(path, np.array(json.dumps({"about": {}, "models": {"growth": {"training mean": model}}})))
        with pytest.raises(UnreadableError, match="no fitted baselines"):
            load_models(path, CELL)
    gone = {"growth": {"smallest subset": ["SmallestSubset", {}], "training mean": ["TrainingMean", {"mean": 1.0}]}}
    np.savez(path, np.array(json.dumps({"about": {}, "models": gone})))
    assert list(load_models(path, CELL)[0]["growth"]) == ["training mean"]
    np.savez(path, np.array([{"an": "object"}], dtype=object))
    with pytest.raises(UnreadableError):
        load_models(path, CELL)


REACTIONS = Reactions(CELL)


def invented(seed: int, number: int, most: int = 6) -> Strains:
    """Return strains with up to ``most`` deletions, many of them in genes of one complex."""
    rng, genes = np.random.default_rng(seed), len(CELL.genes)
    starts = rng.integers(0, genes, number)
    genotypes = [
        np.unique((start + rng.integers(0, 8, rng.integers(1, most + 1))) % genes).tolist() for start in starts
    ]
    return strains_of(genotypes, genes)


def names(strains: Strains) -> list[list[str]]:
    return [[CELL.genes.names[gene] for gene in genes] for genes in np.split(strains.targets, strains.offsets[1:-1])]


def test_the_lost_reactions_are_those_whose_rule_is_false() -> None:
    strains = invented(0, 60)
    model = cobra.io.load_model("textbook")
    lost, nodes = REACTIONS.lost(strains), REACTIONS.lost_nodes(strains)
    expected = [
        sum(not reaction.gpr.eval(knockouts) for reaction in model.reactions if reaction.genes)
        for knockouts in map(set, names(strains))
    ]
    assert lost.sum(axis=1).tolist() == expected
    assert max(expected) > 3
    # A reaction with two complexes is kept as long as one is left.
    assert (nodes.sum(axis=1) > lost.sum(axis=1)).any()


@pytest.mark.parametrize("lose_blocked", [False, True])
def test_the_bound_is_that_of_the_link_without_a_model(lose_blocked: bool) -> None:
    cell = build_cell(CellConfig(model="textbook", lose_blocked=lose_blocked)) if lose_blocked else CELL
    reactions, train, test = Reactions(cell), invented(0, 300, most=3), invented(2, 200)
    known = {frozenset(genes) for genes in train.genotypes}
    test = test.take(np.array([row for row, genes in enumerate(test.genotypes) if frozenset(genes) not in known]))
    y = np.random.default_rng(1).choice([0.0, 0.3, 0.7, 0.9, 1.0, 1.1], len(train))
    link = MeasuredStrains(1, REACTION)
    link.remember(ResidentCell.of(cell), batch_of(train), torch.as_tensor(y)[:, None])
    found = UntrainedBound(reactions).fit(train, y).predict(test)
    np.testing.assert_allclose(found, link(ResidentCell.of(cell), batch_of(test))[:, 0].numpy(), atol=1e-6)
    assert 0.2 < (found < 1).mean() < 1
    assert (reactions.lost_nodes(test).sum() > REACTIONS.lost_nodes(test).sum()) == lose_blocked
    assert not (reactions.of_bounds(test) - reactions.lost_nodes(test) > 0).nnz
    for row in range(20):  # one strain alone loses what it loses among others
        alone = reactions.of_bounds(test.take(np.array([row])))
        assert (alone != reactions.of_bounds(test)[[row]]).nnz == 0


def test_strains_that_lose_nothing_bound_no_other() -> None:
    idle = np.flatnonzero(np.diff(REACTIONS.lost_nodes(strains_of([[g] for g in range(137)], 137)).indptr) == 0)
    train = strains_of([[int(idle[0])], [0]], 137) if len(idle) else strains_of([[], [0]], 137)
    model = UntrainedBound(REACTIONS).fit(train, np.array([0.5, 0.9]))
    assert model.predict(strains_of([[1], [0, 1]], 137)).tolist() == [1.0, 0.9]


def fitted_over_strains(
    strains: Strains, y: NDArray[np.float64], own: float, penalties: Sequence[float]
) -> list[ReactionKernelRidge]:
    problem = Problem(strains, strains, y, y, lambda: unlike(len(CELL.genes)), REACTIONS)
    return list(fit_reaction_kernel(problem, own, penalties))


def among(kernel: ReactionKernelRidge, strains: Strains) -> ReactionKernelRidge:
    return replace(kernel, landmarks=kernel.features(strains))


def batch_of(strains: Strains) -> GenotypeBatch:
    return GenotypeBatch.from_lists([genes.tolist() for genes in np.split(strains.targets, strains.offsets[1:-1])])


@pytest.mark.parametrize("own", [0.1, 0.5, 1.0])
def test_the_kernel_is_tanimotos_and_a_covariance(own: float) -> None:
    strains = invented(0, 80)
    found = among(ReactionKernelRidge(own, REACTIONS), strains).covariance(strains)
    lost, near = REACTIONS.lost(strains).toarray(), REACTIONS.neighbourhood.toarray()
    inner = lost @ (own * np.eye(lost.shape[1]) + (1 - own) * near @ near.T) @ lost.T
    for i, j in itertools.product(range(80), repeat=2):
        union = inner[i, i] + inner[j, j] - inner[i, j]
        assert found[i, j] == pytest.approx(inner[i, j] / union if union > 1e-6 else 1.0, abs=1e-5)
    assert np.linalg.eigvalsh(found).min() > -1e-5


def test_it_is_the_ridge_regression_of_the_whole_kernel() -> None:
    train, test = invented(0, 150), invented(1, 50)
    y, kernel = np.random.default_rng(2).normal(size=150), ReactionKernelRidge(0.3, REACTIONS)
    kernel = among(kernel, train)
    whole = kernel.covariance(train)
    for model, penalty in zip(fitted_over_strains(train, y, 0.3, (1.0, 0.1)), (1.0, 0.1), strict=True):
        weights = np.linalg.solve(whole + penalty * np.eye(150), y - y.mean())
        expected = y.mean() + kernel.covariance(test) @ weights
        np.testing.assert_allclose(model.predict(test), expected, atol=1e-4)


def test_a_large_table_is_sampled_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_ridge, "MOST_STRAINS", 50)
    (model,) = fitted_over_strains(invented(0, 80), np.arange(80.0), 0.3, [0.01])
    assert model.limited == "a sample of 50 of 80 strains"
    monkeypatch.setattr(kernel_ridge, "REACTION_LANDMARKS", 10)
    (model,) = fitted_over_strains(invented(0, 80), np.arange(80.0), 0.3, [0.01])
    assert model.limited == "10 landmarks of a sample of 50 of 80 strains"


def test_too_many_pairs_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    strains, y = invented(0, 30), np.linspace(0.2, 1, 30)
    problem = Problem(strains, strains, y, y, lambda: unlike(len(CELL.genes)), REACTIONS)
    bound, kernel = (ALL_BASELINES[name] for name in ("untrained bound", "reaction kernel ridge"))
    assert bound.why_not(problem) is kernel.why_not(problem) is None
    monkeypatch.setattr(simple, "MOST_CELLS", 10)
    assert str(bound.why_not(problem)).endswith("pairs, and is limited to 1e+01")
    wild_types = strains.take(np.arange(2)).with_targets(np.zeros(strains.offsets[2], bool))
    assert kernel.why_not(replace(problem, train=wild_types)) == "needs training strains that lose a reaction"
