"""Predicted costs, and the share of rows that change, against a plain walk over the edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.kernels.spmm import KERNELS
from dglcell.perturbation.choose.autotuned import Rates, measure_rates, predict_product, survey
from dglcell.perturbation.genotype import GenotypeBatch
from tests.examples import examples
from tests.graph.test_resident import small_cell
from tests.random_cells import RandomCell, genotypes_of, random_cells


@examples(8)
@given(data=st.data(), cell=random_cells(), layers=st.integers(1, 3))
def test_shares_are_those_of_a_walk_over_the_edges(data, cell: RandomCell, layers: int) -> None:
    strains = data.draw(genotypes_of(cell))
    plan = [list(cell.edges)] * layers
    shares = survey(cell.resident, plan, GenotypeBatch.from_lists(strains))
    rows = [{relation: 0 for relation in cell.edges} for _ in plan]
    moved = [{relation: 0 for relation in cell.edges} for _ in plan]
    for strain in strains:
        lost = {node_type: ~kept for node_type, kept in cell.keep(strain).items()}
        changed = {node_type: np.zeros(n, dtype=bool) for node_type, n in cell.sizes.items()}
        for layer in range(layers):
            after = {node_type: mask.copy() for node_type, mask in changed.items()}
            for relation, (u, v) in cell.edges.items():
                sources = changed[relation[0]] | lost[relation[0]]
                here = changed[relation[2]] | lost[relation[2]]
                here[v[sources[u]]] = True
                rows[layer][relation] += int(here.sum())
                moved[layer][relation] += int(sources[u].sum())
                after[relation[2]] |= here
            changed = after
    for layer in range(layers):
        for relation, (u, _) in cell.edges.items():
            total = cell.sizes[relation[2]] * len(strains)
            share = shares[layer][relation]
            assert share.total_rows == total
            assert share.rows == pytest.approx(rows[layer][relation] / total, abs=1e-6)
            assert share.edges == pytest.approx(moved[layer][relation] / max(len(u) * len(strains), 1), abs=1e-6)


def test_rates_are_those_of_a_machine() -> None:
    rates = measure_rates(torch.device("cpu"), torch.float32)
    assert 1e8 < rates.bytes < 1e14
    assert 1e8 < rates.flops < 1e16


def test_a_gather_costs_less_than_one_that_writes_every_message() -> None:
    edges = small_cell()["gene", "physical", "gene"]
    seconds = {kernel: predict_product(kernel, edges, 64, 4, Rates(1e10, 1e11)) for kernel in KERNELS}
    assert seconds["dense"] == pytest.approx(2 * edges.num_src * edges.num_dst * 64 / 1e11)
    assert all(math.isfinite(s) and s > 0 for s in seconds.values())
    more = predict_product("reference", edges, 128, 4, Rates(1e10, 1e11))
    assert more == pytest.approx(2 * seconds["reference"])
