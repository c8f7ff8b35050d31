"""Shares in interactions: they sum to the alternating sum of what the model predicts for subsets of the changes."""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import dglcell
from dglcell.api import Predictor
from dglcell.cli import main
from dglcell.data.strains import Strains
from dglcell.errors import GenotypeError
from dglcell.explanations.files import write
from dglcell.explanations.interactions import MOST_CHANGES, subsets_of
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.runs.directory import RunDirectory

STRAINS = [["b0008", "b2464"], ["b0114", "b0115", "b0116"], ["b0720", "b0008"]]


@pytest.fixture(scope="module")
def predictor(tiny_run: RunDirectory) -> Predictor:
    """In float64."""
    found = dglcell.load(tiny_run.path)
    members = [
        replace(one, model=copy.deepcopy(one.model).double(), normaliser=copy.deepcopy(one.normaliser).double())
        for one in found.members
    ]
    return Predictor(tuple(members), found.directories)


def alternating_sum(predictor: Predictor, genes: list[str]) -> float:
    """Predict every subset by the model itself, and add up with signs."""
    [member] = predictor.members
    total = 0.0
    for size in range(len(genes) + 1):
        for chosen in itertools.combinations(genes, size):
            indices = [predictor.cell.genes.index(gene) for gene in chosen]
            with torch.no_grad():
                score = member.model(GenotypeBatch.from_lists([indices])).phenotypes
            total += (-1) ** (len(genes) - size) * float(member.normaliser.restore(score)[0, 0])
    return total


def test_parts_sum_to_the_interaction_of_pairs_and_triples(predictor: Predictor) -> None:
    found = predictor.explain(STRAINS, interaction=True, nodes=None)
    expected = [alternating_sum(predictor, genes) for genes in STRAINS]
    np.testing.assert_allclose(found.strains["change"], expected, atol=1e-10)
    np.testing.assert_allclose(found.strains["predicted"] - found.strains["expected"], expected, atol=1e-10)
    np.testing.assert_allclose(found.parts.groupby("strain")["share"].sum(), expected, atol=1e-10)
    np.testing.assert_allclose(found.strains["rest"], 0, atol=1e-10)
    graph = found.parts[found.parts["part"] == "graph"].set_index("strain")["share"].sort_index()
    for table in (found.layers, found.nodes):
        for _, of_layer in table.groupby("layer"):
            sums = of_layer.groupby("strain")["share"].sum().reindex(graph.index, fill_value=0.0)
            np.testing.assert_allclose(sums, graph, atol=1e-10)
    assert np.abs(expected).max() > 1e-4


def test_interactions_are_the_same_in_any_batch(predictor: Predictor) -> None:
    together = predictor.explain(STRAINS, interaction=True)
    alone = predictor.explain(STRAINS, interaction=True, batch_size=1)
    pd.testing.assert_frame_equal(together.parts, alone.parts, atol=1e-10)


def test_predictions_for_subsets_are_kept(predictor: Predictor) -> None:
    found = predictor.explain(STRAINS[:1], interaction=True)
    assert found.subsets is not None
    assert found.subsets["genes"].tolist() == ["", "b0008", "b2464", "b0008;b2464"]
    expected = predictor.predict([["b0008"], ["b2464"], ["b0008", "b2464"]])["predicted_fitness"]
    np.testing.assert_allclose(found.subsets["predicted"][1:], expected, atol=1e-6)
    np.testing.assert_allclose(found.subsets["predicted"][0], found.strains["wild_type"][0], atol=1e-12)
    assert predictor.explain(STRAINS[:1]).subsets is None
    assert "expected" not in predictor.explain(STRAINS[:1]).strains


@given(st.lists(st.lists(st.integers(0, 8), min_size=2, max_size=4, unique=True), min_size=1, max_size=4), st.data())
def test_every_subset_has_its_sign(genes: list[list[int]], data: st.DataObject) -> None:
    names = tuple("abcdefghi")
    left = data.draw(st.lists(st.floats(0.125, 1, width=32), min_size=9, max_size=9))
    strains = Strains.from_names([{names[gene]: left[gene] for gene in strain} for strain in genes])
    found = subsets_of(strains)
    values: NDArray[np.float64] = np.random.default_rng(0).normal(size=len(found.strains))
    by_subset = {
        (owner, frozenset(changes)): value
        for owner, changes, value in zip(found.owners.tolist(), found.strains.changes, values, strict=True)
    }
    for strain, sum_ in zip(range(len(genes)), found.sums(values), strict=True):
        mine = [names[gene] for gene in genes[strain]]
        expected = 0.0
        for size in range(len(mine) + 1):
            for chosen in itertools.combinations(mine, size):
                expected += (-1) ** (len(mine) - size) * by_subset[strain, frozenset(chosen)]
        assert sum_ == pytest.approx(expected)
    changes = found.strains.changes
    for strain, whole in enumerate(found.whole):
        assert changes[whole] == pytest.approx({names[gene]: left[gene] for gene in genes[strain]})


def test_a_gene_named_twice_counts_once() -> None:
    strains = Strains.from_indices(("a", "b"), [[0, 1, 0]])
    assert subsets_of(strains).strains.genotypes == [[], ["a"], ["b"], ["a", "b"]]


def test_strains_without_an_interaction_are_refused(predictor: Predictor) -> None:
    with pytest.raises(GenotypeError) as error:
        predictor.explain([["b0008", "b2464"], ["b0720"], ["b0008"]], interaction=True)
    assert str(error.value) == (
        "an interaction is between several changed genes\n"
        "  got:      1 in strain 1, 2\n"
        "  expected: 2 to 6 different genes in every strain\n"
        "  do:       leave these strains out, or explain their whole change"
    )
    many = [predictor.cell.genes.names[: MOST_CHANGES + 1]]
    with pytest.raises(GenotypeError, match="got:      7 in strain 0"):
        predictor.explain(many, interaction=True)


def test_the_command_and_its_files(
    tiny_run: RunDirectory, predictor: Predictor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tiny_run.path)
    assert main(["explain", run, "b0008 b2464", "--interaction"]) == 0
    said = capsys.readouterr().out
    assert "talB (b0008), talA (b2464): fitness" in said
    assert ", interaction " in said
    assert "what is predicted for fewer of these changes" in said
    assert main(["explain", run, "--top", "4", "--interaction"]) == 0
    assert "interaction" in capsys.readouterr().out.splitlines()[0]
    assert main(["explain", run, "b0008", "--interaction"]) == 2
    assert "an interaction is between several changed genes" in capsys.readouterr().err
    found = predictor.explain(STRAINS[:1], interaction=True)
    for name in ("out.csv", "out.json", "out.html"):
        write(found, tmp_path / name)
    table = pd.read_csv(tmp_path / "out.csv", keep_default_na=False)
    assert table[table["table"] == "strains"]["part"].tolist() == [
        "predicted", "wild_type", "expected", "change", "rest",
    ]  # fmt: skip
    assert table[table["table"] == "subsets"]["genes"].tolist() == ["", "b0008", "b2464", "b0008;b2464"]
    [strain] = json.loads((tmp_path / "out.json").read_text())["strains"]
    assert [subset["genes"] for subset in strain["subsets"]] == ["", "b0008", "b2464", "b0008;b2464"]
    assert "an interaction of" in (tmp_path / "out.html").read_text()
