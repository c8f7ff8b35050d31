"""``dglcell explain`` and ``Predictor.explain``: subsets of changes, which are responsible, and what is printed."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dglcell
from dglcell.api import Predictor
from dglcell.cli import main
from dglcell.data.strains import Strains
from dglcell.errors import GenotypeError
from dglcell.explain import (
    COLUMNS,
    KINDS,
    MOST_CHANGES,
    STRONGEST,
    TOGETHER,
    WIDTH,
    by_gene,
    called,
    check_attributable,
    compare_subsets,
    split,
    subsets_of,
    written,
)
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.schema import CATALYSES
from dglcell.models.config import HeteroCellConfig
from dglcell.runs import RunDirectory

STRAINS = [["b0008", "b2464"], ["b0114", "b0115", "b0116"], ["b0720"]]


@pytest.fixture(scope="module")
def predictor(tiny_run: RunDirectory) -> Predictor:
    return dglcell.load(tiny_run.path, predict_with="network")


@pytest.fixture(scope="module")
def found(predictor: Predictor) -> pd.DataFrame:
    return predictor.explain(STRAINS)


def test_every_subset_is_predicted_as_a_strain_of_its_own(found: pd.DataFrame, predictor: Predictor) -> None:
    assert found.columns.tolist() == list(COLUMNS)
    assert found["strain"].value_counts().to_dict() == {0: 4, 1: 8, 2: 2}
    triple = found[found["strain"] == 1]
    assert triple["subset"].tolist()[:5] == ["", "b0114", "b0115", "b0116", "b0114;b0115"]
    assert set(triple["genes"]) == {"b0114;b0115;b0116"}
    subsets = found[found["size"] > 0]
    expected = predictor.predict([subset.split(";") for subset in subsets["subset"]])["predicted_fitness"]
    np.testing.assert_allclose(subsets["predicted"], expected, atol=1e-6)
    for _, rows in found.groupby("strain"):
        np.testing.assert_allclose(rows["change"], rows["predicted"] - rows["predicted"].iloc[0])
        assert rows["interaction"].sum() == pytest.approx(rows["change"].iloc[-1])


def test_batches_do_not_matter_and_several_seeds_have_a_mean(found: pd.DataFrame, predictor: Predictor) -> None:
    alone = predictor.explain(STRAINS, batch_size=1)
    np.testing.assert_allclose(alone["predicted"], found["predicted"], atol=1e-6)
    twice = Predictor(predictor.members * 2).explain(STRAINS)
    np.testing.assert_allclose(twice["predicted"], found["predicted"], atol=1e-6)


def test_a_synthetic_lethal_pair_is_responsible_and_not_its_bystander() -> None:
    #        {}   a    b    c   ab   ac   bc  abc
    growth = [1.0, 1.0, 1.0, 0.9, 0.0, 0.9, 0.9, 0.0]
    found = compare_subsets(np.array(growth))
    assert found["responsible"].tolist() == [False] * 4 + [True] + [False] * 3
    assert found["interaction"][4] == -1
    # Of a and b alike each is named; and where nothing changes, nothing is.
    either = compare_subsets(np.array([1, 0, 0, 1, 0, 0, 0, 0.0]))
    assert either["responsible"].tolist() == [False, True, True] + [False] * 5
    assert not compare_subsets(np.ones(8))["responsible"].any()


@given(st.lists(st.lists(st.integers(0, 8), max_size=4, unique=True), min_size=1, max_size=4), st.data())
def test_subsets_keep_activities_and_interactions_have_their_signs(genes: list[list[int]], data: st.DataObject) -> None:
    names = tuple("abcdefghi")
    left = data.draw(st.lists(st.floats(0.125, 1, width=32), min_size=9, max_size=9))
    subsets = subsets_of(Strains.from_names([{names[gene]: left[gene] for gene in strain} for strain in genes]))
    values, first = np.random.default_rng(0).normal(size=len(subsets)), 0
    for own in genes:
        every = [one for size in range(len(own) + 1) for one in itertools.combinations(own, size)]
        mine = range(first, first + len(every))
        first += len(every)
        expected = [{names[gene]: left[gene] for gene in subset} for subset in every]
        assert [subsets.changes[row] for row in mine] == [pytest.approx(one) for one in expected]
        found, by_subset = compare_subsets(values[mine]), dict(zip(every, values[mine], strict=True))
        for subset, size, interaction in zip(every, found["size"], found["interaction"], strict=True):
            inside = [t for size in range(len(subset) + 1) for t in itertools.combinations(subset, size)]
            signed = sum((-1) ** (len(subset) - len(t)) * (by_subset[t] - values[mine][0]) for t in inside)
            assert (interaction, size) == (pytest.approx(signed), len(subset))
    assert first == len(subsets)


def test_too_many_changes_are_refused(predictor: Predictor) -> None:
    many = [["b0008"], list(predictor.cell.genes.names[: MOST_CHANGES + 1])]
    with pytest.raises(GenotypeError) as error:
        predictor.explain(many)
    assert str(error.value) == (
        "a strain changes too many genes for a table of all subsets\n"
        "  got:      7 changed genes in strain 1\n"
        "  expected: at most 6 changed genes\n"
        "  do:       leave these strains out"
    )
    with pytest.raises(GenotypeError, match="unknown gene 'YAL001C'"):
        predictor.explain([["YAL001C"]])


def test_a_baseline_that_predicts_is_explained_alike(tiny_run: RunDirectory) -> None:
    predictor = dglcell.load(tiny_run.path, predict_with="baseline")
    found = predictor.explain([["b0008", "b2464"]])
    assert found.predicted.iloc[-1] == pytest.approx(predictor.predict([["b0008", "b2464"]]).predicted_fitness[0])


def test_the_command_prints_a_few_strains_in_full_and_more_as_a_list(
    tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, table, output = str(tiny_run.path), tmp_path / "in.csv", tmp_path / "out.csv"
    assert main(["explain", run, "b0008, b2464", "b0008:1,0"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("talB (b0008), talA (b2464): fitness")
    assert "  responsible: " in said
    assert "The model predicts the same as for the wild type." in said
    assert main(["explain", run, "ade5,7"]) == 2
    assert "unknown gene 'ade5,7'" in capsys.readouterr().err
    table.write_text("genes\nb0008\nb0720\nb0114;b0115\nb0116\n")
    assert main(["explain", run, str(table)]) == 0
    assert "gltA (b0720)" in capsys.readouterr().out.splitlines()[2]
    assert main(["explain", run, str(table), "-o", str(output)]) == 0
    assert "4 strains explained in" in capsys.readouterr().out
    written_rows = pd.read_csv(output, keep_default_na=False)
    assert (written_rows.kind.iloc[0], {*written_rows.kind} <= {"subset", *KINDS}) == ("subset", True)
    subsets = written_rows[written_rows["kind"] == "subset"]
    assert subsets["name"].tolist()[:4] == ["", "b0008", "", "b0720"]
    whole = subsets[subsets["size"] == subsets.groupby("strain")["size"].transform("max")]
    terms = written_rows[written_rows.kind == "term"].groupby("strain").change.sum()
    np.testing.assert_allclose(terms, whole.change, atol=2e-6)
    assert main(["explain", run, "b0114 b0115 b0116"]) == 0
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert len(lines) <= 25
    assert any(line.startswith("  relations: ") for line in lines)
    assert max(map(len, lines)) <= WIDTH


def test_every_kind_sums_to_the_predicted_change(predictor: Predictor) -> None:
    assert written({"b0008": 0.0, "b2464": 0.30000001192}) == "b0008;b2464:0.3"
    found, subsets = predictor.attribute(STRAINS), predictor.explain(STRAINS)
    change = subsets.groupby("strain")["change"].last()
    sums = found.pivot_table(index="strain", columns="kind", values="change", aggfunc="sum")
    assert set(sums.columns) <= set(KINDS)
    for kind in ("term", "gene"):
        np.testing.assert_allclose(sums[kind], change, atol=2e-6)
    graph = found[(found.kind == "term") & (found.name == "graph")].set_index("strain")["change"]
    for kind in ("relation", "lost", "node"):
        np.testing.assert_allclose(sums[kind], graph, atol=1e-10)
    assert found.groupby(["strain", "kind"])["name"].count().max() == STRONGEST + 1
    assert {"talB (b0008)", "talA (b2464)"} <= set(found[(found.strain == 0) & (found.kind == "gene")].name)
    assert found[(found.strain == 2) & (found.kind == "gene")].name.tolist() == ["gltA (b0720)"]
    np.testing.assert_allclose(found.part, found.change / change[found.strain].to_numpy(), rtol=1e-3, atol=1e-4)


def test_nor_do_they_for_what_is_attributed(predictor: Predictor) -> None:
    columns = ["strain", "kind", "name"]
    whole, alone = (predictor.attribute(STRAINS, batch_size=size).set_index(columns).change for size in (None, 1))
    pd.testing.assert_series_equal(whole.sort_index(), alone.sort_index(), atol=1e-10)
    assert split(predictor.members, predictor._read([["b0008"]]).strains.take(np.zeros(0, np.int64))).empty
    twice = Predictor(predictor.members * 2).attribute(STRAINS).set_index(columns).change
    pd.testing.assert_series_equal(whole.sort_index(), twice.sort_index(), atol=1e-10)


def test_a_lost_reaction_is_shared_by_the_genes_that_take_it() -> None:
    """Three genes: the first two catalyse one reaction; another reaction is lost for none of them."""
    cell = build_cell(CellConfig(model="textbook"))
    edges = cell.edges(CATALYSES)
    by_reaction = pd.Series(edges.src).groupby(edges.dst).unique()
    reaction = next(node for node, genes in by_reaction.items() if len(genes) == 2)
    first, second = by_reaction[reaction]
    other = next(node for node, genes in by_reaction.items() if first not in genes and second not in genes)
    rows = [("reaction", reaction, 1.0), ("gene", first, 0.25), ("reaction", other, 8.0), ("", -1, 2.0)]
    sources = pd.DataFrame(rows, columns=["node_type", "node", "change"]).assign(strain=0, phenotype=0)
    found = by_gene(sources, Strains.from_indices(cell.genes.names, [[first, second]]), cell)
    names = [called(cell.genes, cell.genes.names[gene]) for gene in (first, second)]
    assert found.groupby("name").change.sum().to_dict() == {names[0]: 0.75, names[1]: 0.5, TOGETHER: 10.0}


def test_without_differences_the_subsets_are_shown_and_the_reason(
    tiny_run: RunDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    attending = SimpleNamespace(config=SimpleNamespace(model=HeteroCellConfig(conv="gatv2")))
    monkeypatch.setattr("dglcell.explain.check_attributable", lambda members: check_attributable([attending]))
    assert main(["explain", str(tiny_run.path), "b0720"]) == 0
    said = capsys.readouterr().out
    assert "responsible: gltA (b0720)" in said
    assert "this model computes whole states" in said
