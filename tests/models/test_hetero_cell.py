"""The whole model: dropout, recomputation, batches, weights of relations, and what it refuses."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.errors import ConfigError
from dglcell.graph.catalogue import NetworkConfig
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.networks import SimilarityConfig, SimilaritySource
from dglcell.graph.resident import ResidentCell
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.models.model import count_parameters
from dglcell.nn.config import CROSS_RELATION
from dglcell.perturbation.execution import Choices
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import perturb
from tests.examples import examples
from tests.perturbation.states_of import agree
from tests.random_cells import (
    SUMMING,
    RandomCell,
    genotypes_of,
    make_cell,
    random_cells,
    randomise,
    resident_cell,
    results,
    textbook_cell,
)

TOLERANCE = {"atol": 1e-10, "rtol": 1e-10}


def small_config(**changes) -> HeteroCellConfig:
    base = {"hidden": 8, "layers": 2, "local_heads": 2, "pool": ["gene", "reaction"], "kernel": "auto"}
    return HeteroCellConfig(**{**base, **changes})


def nine_network_cell(genes: int = 6607) -> ResidentCell:
    return resident_cell({("gene", f"network_{i}", "gene"): ([0], [1]) for i in range(9)}, {"gene": genes})


def outcome(cell: RandomCell, batch: GenotypeBatch, dense_share: float = 0.5, **changes) -> list[torch.Tensor]:
    """Return the results of a model with two outputs."""
    torch.manual_seed(0)
    config = small_config(**changes)
    config.validate()
    model = randomise(HeteroCell(cell.resident, config, outputs=2).double())
    model.choose(Choices("difference", dense_share=dense_share))
    return results(model, batch)


@pytest.mark.parametrize("conv", SUMMING)
@examples(5)
@given(
    data=st.data(),
    cell=random_cells(),
    dense_share=st.sampled_from([0.0, 1e9]),
    cross_relation=st.sampled_from(CROSS_RELATION),
)
def test_dropout_draws_the_same_numbers_for_differences_of_all_pairs_and_of_listed_ones(
    conv: str, cross_relation: str, data, cell: RandomCell, dense_share: float
) -> None:
    """The base and all strains lose the same numbers, however rows are stored and however often they are computed."""
    batch = GenotypeBatch.from_lists(data.draw(genotypes_of(cell)))
    changes = {"conv": conv, "cross_relation": cross_relation, "dropout": 0.3}
    expected = outcome(cell, batch, strategy="node_mask", recompute="false", **changes)
    without = outcome(cell, batch, strategy="node_mask", **{**changes, "dropout": 0.0})
    assert not torch.equal(expected[0], without[0])
    for strategy, recompute in (("node_mask", "true"), ("difference", "false"), ("difference", "true")):
        agree(outcome(cell, batch, dense_share, strategy=strategy, recompute=recompute, **changes), expected, strategy)


@pytest.mark.parametrize("cross_relation", ["sum", "pairwise_interaction"])
@pytest.mark.parametrize("layers", [0, 1, 2])
@pytest.mark.parametrize("pool", [["gene"], ["reaction"], ["reaction", "metabolite"]], ids="-".join)
def test_every_parameter_that_can_have_a_gradient_gets_one(pool: list[str], layers: int, cross_relation: str) -> None:
    """Several processes wait for all of them."""
    options = {"local_head": False, "combination": "none", "cross_relation": cross_relation}
    model = HeteroCell(textbook_cell("isoenzyme", "shares_complex"), small_config(pool=pool, layers=layers, **options))
    model(GenotypeBatch.from_lists([[0], [31, 104], [0, 31, 104]])).phenotypes.sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None and p.requires_grad] == []
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    assert bool(frozen) == (pool != ["gene"]), "the last states of genes are read, or not"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": 10}, r"`model.local_heads` does not divide `model.hidden`"),
        ({"norm": "graph"}, r"norm 'graph' takes statistics over nodes or strains"),
        ({"cross_relation": "pairwise_interaction", "cross_relation_norm": "batch"}, r"norm 'batch' takes statistics"),
        ({"conv": "gcn"}, r"`model.conv` is unknown\n  got:      gcn\n  expected: gin, sage, gatv2"),
        ({"conv": "gatv2", "conv_heads": 5}, r"`model.conv_heads` does not divide `model.hidden`\n  got:      5"),
        ({"dropout": 1.0}, r"`model.dropout` is no probability"),
        ({"combination": "none"}, r"would leave the local head without use"),
        ({"pool": []}, r"`model.pool` names no node types"),
        ({"metabolism": False, "pool": ["reaction"]}, r"`model.pool` needs metabolism"),
        ({"cross_relation": "max"}, r"`model.cross_relation` is unknown\n  got:      max\n  expected: sum, mean, pair"),
        ({"cross_relation_norm": "layer"}, r"`model.cross_relation_norm` has no effect .* by their sum"),
        ({"cross_relation_layers": 1}, r"`model.cross_relation_layers` is too"),
    ],
)
def test_bad_configurations_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HeteroCellConfig(**changes).validate()


def test_relations_that_the_cell_lacks_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"`model.relations` names relations .*\n  got:      \['nonsense'\]"):
        HeteroCell(nine_network_cell(3), HeteroCellConfig(relations=["nonsense"]))


@pytest.mark.parametrize("strategy", ["node_mask", "difference", "edge_mask"])
def test_fillers_of_a_batch_change_nothing(strategy: str) -> None:
    torch.manual_seed(0)
    cell = make_cell().resident
    model = randomise(HeteroCell(cell, small_config(strategy=strategy), outputs=2).double())
    plain = GenotypeBatch.from_lists([[], [3], [0, 59], [7, 7, 8], []])
    fillers = torch.full((15 - len(plain.genes),), -1)
    filled = dataclasses.replace(plain, nodes=torch.cat([plain.genes, fillers]))
    agree(results(model, filled), results(model, plain))


STRAINS = [[], [3], [0, 59], [7, 8], []]


@pytest.mark.parametrize("strategy", ["node_mask", "difference", "edge_mask", "edge_subgraph"])
def test_messages_of_the_wild_type_leave_what_is_lost_to_the_readout(strategy: str) -> None:
    """Strains without deletions are as on their own graphs; others pool the wild type's states of what they keep."""
    cell = make_cell().resident
    models = []
    for messages in ("own", "wild_type"):
        torch.manual_seed(0)
        config = small_config(strategy=strategy, messages=messages, local_head=False, combination="none")
        models.append(randomise(HeteroCell(cell, config).double()))
    own, whole = models
    assert count_parameters(own) == count_parameters(whole)
    batch = GenotypeBatch.from_lists(STRAINS)
    (x, *of_own), (y, *gradients) = (results(model, batch) for model in models)
    torch.testing.assert_close(y[[0, 4]], x[[0, 4]], **TOLERANCE)
    assert not torch.isclose(y[1:4], x[1:4]).any()
    assert [bool(g.any()) for g in gradients] == [bool(g.any()) for g in of_own]
    states, graph = whole.wild_type(), whole.terms["graph"]
    kept = perturb(cell, batch).keep

    def pooled(t: str, rows: torch.Tensor) -> torch.Tensor:
        x_KH, pool = states[t][rows], graph.pools[t]
        return torch.softmax(pool.gate(x_KH), 0).T @ pool.value(x_KH) * cell.num_nodes[t]

    parts = [pooled(t, torch.ones_like(kept[t][:, 2])) - pooled(t, kept[t][:, 2]) for t in whole.config.pool]
    z = torch.cat(parts, 1)
    torch.testing.assert_close(whole(batch).phenotypes[2:3], graph.head(z), **TOLERANCE)
    with torch.no_grad():
        kept_for_later = whole.eval()(batch).phenotypes
    torch.testing.assert_close(kept_for_later, whole(batch).phenotypes, **TOLERANCE)


@pytest.mark.parametrize("strategy", ["difference", "edge_subgraph"])
def test_a_source_of_similarity_has_a_learned_weight_in_every_strategy(strategy: str, tmp_path: Path) -> None:
    (tmp_path / "sets.csv").write_text("gene,set\n" + "\n".join(f"b{i:04},{i % 5 * 3 + i % 3}" for i in range(4200)))
    sets = NetworkConfig(path="sets.csv", columns=["gene", "set"], layout="groups")
    sources = {"mine": SimilaritySource(sets=sets)}
    similarity = SimilarityConfig(neighbours=3, sources=sources)
    cell = build_cell(CellConfig(model="textbook", derived=["isoenzyme"], similarity=similarity), str(tmp_path))
    found = []
    for name in ("node_mask", strategy):
        config = HeteroCellConfig(hidden=8, layers=2, local_heads=2, strategy=name)
        torch.manual_seed(0)
        model = randomise(HeteroCell(ResidentCell.of(cell), config).double())
        weights = [p for key, p in model.named_parameters() if key.endswith("conv.weight") and p.shape == (1,)]
        assert len(weights) == 2
        predicted = model(GenotypeBatch.from_lists([[0, 5], [7], []])).phenotypes
        gradients = torch.autograd.grad(predicted.square().sum(), weights)
        found.append((predicted, *gradients))
        assert all(gradient.abs() > 0 for gradient in gradients)
    agree(*found)
