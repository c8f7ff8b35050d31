"""Genotype batches against plain lists."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.errors import GenotypeError
from dglcell.perturbation.genotype import GenotypeBatch
from tests.examples import examples

STRAINS = st.lists(st.lists(st.integers(0, 20), max_size=10), max_size=6)


@examples(15)
@given(strains=STRAINS)
def test_padding_keeps_every_gene_in_order(strains: list[list[int]]) -> None:
    genes, present = GenotypeBatch.from_lists(strains).padded()
    assert genes.shape == (len(strains), max((len(s) for s in strains), default=0))
    assert [row[mask].tolist() for row, mask in zip(genes, present, strict=True)] == [
        list(dict.fromkeys(s)) for s in strains
    ]


def test_a_batch_seen_in_inference_mode_can_be_learned_from() -> None:
    with torch.inference_mode():
        batch = GenotypeBatch.from_lists([[1], []])
        batch.padded()
    weight = torch.ones(3, 2, requires_grad=True)
    genes_BK, present_BK = batch.padded()
    torch.nn.functional.embedding(genes_BK, weight)[present_BK].sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [[0, 0], [1, 1], [0, 0]]


@examples(15)
@given(strains=STRAINS, shared=st.lists(st.integers(0, 20), max_size=3, unique=True))
def test_the_strain_of_shared_deletions_deletes_nothing_else(strains: list[list[int]], shared: list[int]) -> None:
    batch = dataclasses.replace(GenotypeBatch.from_lists(strains), shared=tuple(shared))
    base = batch.of_shared()
    assert (base.genes.tolist(), base.offsets.tolist(), base.max_deletions) == (shared, [0, len(shared)], len(shared))


def test_indices_outside_the_cell_are_refused() -> None:
    with pytest.raises(GenotypeError, match=r"strain 1: gene index outside the cell graph\n  got:      \[7\]"):
        GenotypeBatch.from_lists([[0], [7, 1]], num_genes=5)
    with pytest.raises(GenotypeError, match=r"\[-1\]"):
        GenotypeBatch.from_lists([[-1]])
