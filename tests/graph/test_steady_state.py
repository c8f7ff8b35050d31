"""Reactions that carry no flux at steady state: by a search one reaction at a time, and by linear programmes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cobra.flux_analysis import find_blocked_reactions
from cobra.io import load_model
from hypothesis import given
from hypothesis import strategies as st

from dglcell.errors import GraphError
from dglcell.graph.cell import CellConfig, build_cell, read_cell, save_cell
from dglcell.graph.metabolism import model_reaction
from dglcell.graph.resident import ResidentCell, SteadyState
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.models.terms.link import blocked_reactions
from dglcell.perturbation import STRATEGIES
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.sent import keep_masks
from tests.examples import examples

Column = tuple[tuple[int, int], ...]
"""The metabolites of a reaction node, each with its amount."""

METABOLITES = 5


@st.composite
def networks(draw: Any) -> list[Column]:
    """Reaction nodes, of which some have the same metabolites and some are the reverse of another."""
    amounts = st.dictionaries(st.integers(0, METABOLITES - 1), st.sampled_from([-2, -1, 1, 2]), min_size=1, max_size=3)
    columns = [tuple(sorted(column.items())) for column in draw(st.lists(amounts, min_size=3, max_size=9))]
    for column in draw(st.lists(st.sampled_from(columns), max_size=4)):
        columns.append(tuple((m, -n) for m, n in column) if draw(st.booleans()) else column)
    return columns


def flowing(columns: list[Column], lost: set[int]) -> set[Column]:
    """Return the kinds of reactions that pass the test of each metabolite, by trying one after the other."""
    left = {column for i, column in enumerate(columns) if i not in lost}
    while True:
        column = next((column for column in left if not flows(column, left)), None)
        if column is None:
            return left
        left = left - {column}


def flows(column: Column, left: set[Column]) -> bool:
    """Return whether other reactions use what a reaction makes and make what it uses; its reverse is no other."""
    others = left - {column, tuple((m, -n) for m, n in column)}
    sides = {(m, n > 0) for other in others for m, n in other}
    return all((m, n < 0) in sides for m, n in column)


def steady_state(columns: list[Column]) -> SteadyState:
    nodes = [i for i, column in enumerate(columns) for _ in column]
    metabolites, amounts = zip(*(pair for column in columns for pair in column), strict=True)
    arrays = np.array(nodes), np.array(metabolites), np.array(amounts, dtype=np.float32)
    return SteadyState(*arrays, len(columns), METABOLITES)


@examples(100)
@given(data=st.data(), columns=networks())
def test_what_is_blocked_is_found_one_by_one_too(data: Any, columns: list[Column]) -> None:
    strains = data.draw(st.lists(st.sets(st.integers(0, len(columns) - 1)), min_size=1, max_size=4))
    lost_NB = torch.zeros(len(columns), len(strains), dtype=torch.bool)
    for b, strain in enumerate(strains):
        lost_NB[list(strain), b] = True
    found = steady_state(columns).blocked(lost_NB)
    wild_type = flowing(columns, set())
    for b, strain in enumerate(strains):
        left = flowing(columns, strain)
        expected = [column in wild_type and column not in left for column in columns]
        assert found[:, b].tolist() == expected


def resident(**changes: Any) -> tuple[ResidentCell, list[str]]:
    cell = build_cell(CellConfig(model="textbook", **changes))
    return ResidentCell.of(cell), [model_reaction(name) for name in cell.vocabularies["reaction"].names]


def test_strains_lose_only_what_carries_no_flux_in_linear_programmes_either() -> None:
    with_blocked, reactions = resident(lose_blocked=True)
    by_rules, _ = resident()
    model = load_model("textbook")
    genes = [gene.id for gene in model.genes]
    names = sorted(genes)
    strains = [[names.index(gene)] for gene in ("b0720", "b1136", "b2926", "b0008", "b1779")]
    batch = GenotypeBatch.from_lists(strains)
    kept, kept_by_rules = (keep_masks(cell, batch)["reaction"] for cell in (with_blocked, by_rules))
    assert not (kept & ~kept_by_rules).any()
    beyond = 0
    for b, strain in enumerate(strains):
        with model:
            for gene in strain:
                model.genes.get_by_id(names[gene]).knock_out()
            blocked = set(find_blocked_reactions(model, open_exchanges=False, processes=1))
        lost = {reactions[i] for i in (kept_by_rules & ~kept)[:, b].nonzero().squeeze(1).tolist()}
        assert lost <= blocked
        beyond += len(lost)
    assert beyond > 5


def test_a_batch_is_followed_once_and_another_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, _ = resident(lose_blocked=True)
    assert cell.steady_state is not None
    seen, original = [], cell.steady_state.blocked
    monkeypatch.setattr(cell.steady_state, "blocked", lambda lost_NB: seen.append(1) or original(lost_NB))
    first, second = (GenotypeBatch.from_lists(strains) for strains in ([[7], [20, 90]], [[3], [55]]))
    for batch, number in ((first, 1), (first, 1), (second, 2), (replace(second, shared=()), 2), (first, 3)):
        found = blocked_reactions(cell, batch)
        assert len(seen) == number
        assert torch.equal(found, original(~keep_masks(cell, batch)["reaction"]))


def test_a_cell_graph_keeps_it_in_its_file_and_in_its_hash(tmp_path: Path) -> None:
    cell, other = (build_cell(CellConfig(model="textbook", lose_blocked=value)) for value in (True, False))
    assert cell.sha256 != other.sha256
    for name, one in {"with": cell, "without": other}.items():
        save_cell(one, tmp_path / name)
        read = read_cell(tmp_path / name)
        assert (read.sha256, read.lose_blocked) == (one.sha256, one.lose_blocked)
    meta = json.loads((tmp_path / "with" / "cell.json").read_text())
    (tmp_path / "with" / "cell.json").write_text(json.dumps({**meta, "lose_blocked": False}))
    with pytest.raises(GraphError, match="is damaged"):
        read_cell(tmp_path / "with")


def test_all_strategies_compute_on_the_same_strains() -> None:
    batch = GenotypeBatch.from_lists([[7], [20, 90], [3, 55, 101], []])
    found = {}
    for strategy in STRATEGIES:
        torch.manual_seed(0)
        config = HeteroCellConfig(hidden=8, layers=2, local_heads=2, pool=["gene", "reaction"], strategy=strategy)
        model = HeteroCell(resident(lose_blocked=True)[0], config).double()
        found[strategy] = model(batch).phenotypes
    for strategy, phenotypes in found.items():
        torch.testing.assert_close(phenotypes, found["edge_subgraph"], atol=1e-10, rtol=0, msg=strategy)
    torch.manual_seed(0)
    by_rules = HeteroCell(resident()[0], config).double()(batch).phenotypes
    assert (by_rules - found["difference"]).abs().max() > 1e-6
