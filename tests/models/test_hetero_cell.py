"""The whole model: dropout, recomputation, batches, weights of relations, what it keeps and what it refuses."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from dglcell.errors import ConfigError
from dglcell.graph.catalogue import NetworkConfig
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.networks import SimilarityConfig, SimilaritySource
from dglcell.graph.resident import ResidentCell
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import MODELS as CONFIGURATIONS
from dglcell.models.config import HeteroCellConfig
from dglcell.models.model import StrainModel, count_parameters
from dglcell.nn.config import CROSS_RELATION
from dglcell.perturbation.execution import BaseCache, Choices
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import perturb
from dglcell.perturbation.states import ROWS_IN_BLOCK
from tests.examples import examples
from tests.models.test_dango import small_dango
from tests.models.test_set_operator import make as set_operator
from tests.random_cells import (
    SUMMING,
    RandomCell,
    agree,
    genotypes_of,
    make_cell,
    nine_network_cell,
    random_cells,
    randomise,
    results,
    textbook_cell,
)

TOLERANCE = {"atol": 1e-10, "rtol": 1e-10}


def small_config(**changes) -> HeteroCellConfig:
    config = HeteroCellConfig(**{"hidden": 8, "layers": 2, "local_heads": 2, "pool": ["gene", "reaction"], **changes})
    config.validate()
    return config


def make_model(cell: RandomCell, outputs: int = 1, **changes: object) -> HeteroCell:
    """Return a small model that starts away from zero, the same every time."""
    torch.manual_seed(0)
    return randomise(HeteroCell(cell.resident, small_config(**changes), outputs).double())


def outcome(cell: RandomCell, batch: GenotypeBatch, dense_share: float = 0.5, **changes) -> list[torch.Tensor]:
    """Return the results of a model with two outputs."""
    model = make_model(cell, 2, **changes)
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ROWS_IN_BLOCK, "cpu", 7)
        for strategy in ("node_mask", "difference"):
            options = {"strategy": strategy, **changes}
            agree(*(outcome(cell, batch, dense_share, recompute=again, **options) for again in ("true", "false")))


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
    ("keys", "message"),
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
        (
            {"name": "set_operator", "operator": "transformer"},
            r"`model.operator` is unknown\n  got:      transformer\n  expected: local, both",
        ),
        ({"name": "set_operator", "combination": "none"}, r"`model.combination` is unknown"),
        (
            {"name": "set_operator", "operator": "both", "hidden": 10, "local_heads": 2},
            r"`model.hidden` is not shared evenly.*\n.*10\n.*multiple of 4",
        ),
        ({"name": "set_operator", "local_heads": 5}, r"`model.local_heads` does not divide `model.hidden`"),
        ({"name": "set_operator", "local_deviations": True}, r"`model.local_deviations` needs factorisation"),
        ({"terms": ["graphs"]}, r"`model.terms\[0\]` is unknown\n.*graphs\n.*\n.*did you mean graph"),
        ({"terms": ["graph", {"local_kind": "both"}]}, r"`model.terms\[1\]` is unknown\n.*no name"),
        ({"terms": [{"name": "genes", "kind": 1}]}, r"unknown key `model.terms\[0\].kind`"),
        ({"terms": [{"name": "genes", "local_kind": "x"}]}, r"terms\[0\].local_kind` is unknown"),
        ({"terms": ["graph"], "link": "log"}, "`model.terms` lacks `link`, whose keys are set"),
        ({"terms": []}, "`model.terms` is an empty list"),
    ],
)
def test_bad_configurations_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CONFIGURATIONS[keys.get("name", "hetero_cell")](**keys).validate()


def test_relations_that_the_cell_lacks_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"`model.relations` names relations .*\n  got:      \['nonsense'\]"):
        HeteroCell(nine_network_cell(3), HeteroCellConfig(relations=["nonsense"]))


@pytest.mark.parametrize("strategy", ["node_mask", "difference", "edge_mask"])
def test_fillers_of_a_batch_change_nothing(strategy: str) -> None:
    model = make_model(make_cell(), 2, strategy=strategy)
    plain = GenotypeBatch.from_lists([[], [3], [0, 59], [7, 7, 8], []])
    fillers = torch.full((15 - len(plain.genes),), -1)
    filled = dataclasses.replace(plain, nodes=torch.cat([plain.genes, fillers]))
    agree(results(model, filled), results(model, plain))


STRAINS = [[], [3], [0, 59], [7, 8], []]


@pytest.mark.parametrize("strategy", ["node_mask", "difference", "edge_mask", "edge_subgraph"])
def test_messages_of_the_wild_type_leave_what_is_lost_to_the_readout(strategy: str) -> None:
    """Strains without deletions are as on their own graphs; others pool the wild type's states of what they keep."""
    cell = make_cell().resident
    options = {"strategy": strategy, "local_head": False, "combination": "none"}
    models = own, whole = [make_model(make_cell(), messages=messages, **options) for messages in ("own", "wild_type")]
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


def batches_of(data: st.DataObject, genes: int) -> list[GenotypeBatch]:
    """Batches of different sizes, the first of them perhaps without a deletion."""
    strain = st.lists(st.integers(0, genes - 1), max_size=3, unique=True)
    batch = st.lists(strain, min_size=1, max_size=4)
    return [GenotypeBatch.from_lists(strains) for strains in data.draw(st.lists(batch, min_size=2, max_size=4))]


def predict(model: StrainModel, batches: list[GenotypeBatch]) -> list[Tensor]:
    """As in prediction, with the wild type kept."""
    with torch.inference_mode():
        return [model(batch).phenotypes.clone() for batch in batches]


@pytest.mark.parametrize("conv", SUMMING)
@examples(6)
@given(cell=random_cells(), data=st.data(), residual=st.booleans(), cross_relation=st.sampled_from(CROSS_RELATION))
def test_predictions_are_those_of_a_wild_type_computed_anew(
    conv: str, cross_relation: str, cell: RandomCell, data: st.DataObject, residual: bool
) -> None:
    options = {"conv": conv, "cross_relation": cross_relation, "residual": residual}
    model = make_model(cell, strategy="difference", **options).eval()
    batches = batches_of(data, cell.sizes["gene"])
    # States stay shared as long as they may.
    model.choose(Choices("difference", dense_share=2.0))
    kept = predict(model, batches)
    assert all(map(torch.equal, kept, predict(model, batches)))
    # With gradients nothing is kept.
    for batch, found in zip(batches, kept, strict=True):
        torch.testing.assert_close(found, model(batch).phenotypes.detach(), rtol=1e-12, atol=1e-12)
        model.train().eval()
        torch.testing.assert_close(found, predict(model, [batch])[0], rtol=1e-12, atol=1e-12)


BATCH = GenotypeBatch.from_lists([[0], [1, 2], []])


def step(model: StrainModel) -> None:
    """One step of an optimiser, without leaving evaluation mode."""
    model(BATCH).phenotypes.sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()


def load(model: nn.Module, **options: bool) -> None:
    model.load_state_dict({name: 1.5 * value for name, value in model.state_dict().items()}, **options)


def replace_twice(model: StrainModel) -> None:
    """The second time the memory of the first weights would be free again."""
    for _ in range(2):
        for parameter in model.parameters():
            parameter.data = 1.5 * parameter.data


def write_behind_autograd_and_train(model: StrainModel) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(1.5)
    model.train().eval()


CHANGES: dict[str, Callable[[StrainModel], object]] = {
    "a step": step,
    "loaded": load,
    "loaded by assignment": lambda model: load(model, assign=True),
    "loaded as a part": lambda model: load(nn.ModuleDict({"model": model})),
    "replaced twice": replace_twice,
    "drawn anew": randomise,
    "behind autograd, and trained": write_behind_autograd_and_train,
    "of another type in between": lambda model: write_behind_autograd_and_train(model.float()) or model.double(),
}


MODELS: dict[str, Callable[[], StrainModel]] = {
    "hetero_cell": lambda: make_model(make_cell(), strategy="difference").eval(),
    "set_operator": lambda: set_operator(nine_network_cell(6), metabolism=False).eval(),
    "dango": lambda: randomise(small_dango().double()).eval(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", MODELS)
def test_it_is_given_up_when_weights_change(kind: str, change: str) -> None:
    model = MODELS[kind]()
    before = predict(model, [BATCH])[0]
    other = copy.deepcopy(model)
    CHANGES[change](model)
    after = predict(model, [BATCH])[0]
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, model.train()(BATCH).phenotypes.detach(), rtol=1e-12, atol=1e-12)
    assert torch.equal(predict(other, [BATCH])[0], before), "a copy has states of its own"


@pytest.mark.parametrize(("kind", "encoder"), [("set_operator", "encoder"), ("dango", "encoder.encoders.0")])
def test_the_wild_type_is_encoded_once_per_evaluation_pass_and_once_per_step(kind: str, encoder: str) -> None:
    model, encodings = MODELS[kind](), []
    model.get_submodule(encoder).register_forward_hook(lambda *_: encodings.append(1) and None)
    for context in (torch.no_grad, torch.inference_mode):
        model.eval()
        with context():
            assert torch.equal(model(BATCH).phenotypes, model(BATCH).phenotypes)
    assert len(encodings) == 2
    model(BATCH).phenotypes.sum().backward()
    assert all(p.grad is not None for p in model.get_submodule(encoder).parameters()), "also after a kept encoding"
    model.train()(BATCH)
    assert len(encodings) == 4


@pytest.mark.parametrize("kind", MODELS)
def test_a_batch_of_no_strains_has_no_predictions(kind: str) -> None:
    model = MODELS[kind]()
    outputs = model(BATCH).phenotypes.shape[1]
    assert model(GenotypeBatch.from_lists([])).phenotypes.shape == (0, outputs)


def kept_by(model: HeteroCell) -> dict[tuple[int, ...], list[int]]:
    """Return where the tensors lie that are kept of each base."""

    def places(kept: object) -> list[int]:
        parts = [part if isinstance(part, Tensor) else vars(part) for part in tree_leaves(kept)]
        return [tensor.data_ptr() for tensor in tree_leaves(parts)]

    return {genes: places(kept) for genes, kept in model._base_cache._tables.items()}


@torch.no_grad()
def test_passes_of_two_threads_do_not_mix_what_is_kept() -> None:
    cache, module = BaseCache(), nn.Linear(1, 1).eval()
    one, two = cache.replay(module), cache.replay(module)
    assert one.once(lambda: two.once(lambda: "first")) == "first"
    assert [one.once(lambda: "second"), two.once(lambda: "of the other")] == ["second", "second"]
    assert not copy.deepcopy(cache)._tables, "one copies a model, while another adds to what it keeps"


@pytest.mark.parametrize("strategy", ["difference", "node_mask"])
def test_it_is_kept_in_evaluation_only(strategy: str) -> None:
    model = make_model(make_cell(), strategy=strategy).eval()
    predict(model, [BATCH])
    kept = kept_by(model)
    # Inputs of three node types, products of the relations of two layers, and updates of their nodes.
    assert len(kept[()]) >= 3 + 5 + 4
    predict(model, [GenotypeBatch.from_lists([[3], [0, 1]]), BATCH])
    assert kept_by(model) == kept
    model(BATCH)
    assert kept_by(model) == kept, "gradients are on: nothing is kept, and nothing is given up"
    model.train()
    assert kept_by(model) == {}
    predict(model, [BATCH])
    assert kept_by(model) == {}
    predict(model.eval(), [BATCH])
    assert len(kept_by(model)[()]) == len(kept[()])


@pytest.mark.parametrize("conv", SUMMING)
@examples(4)
@given(cell=random_cells(), data=st.data(), dense_share=st.sampled_from([0.0, 0.5, 2.0]))
def test_deletions_in_common_are_computed_first_and_change_no_prediction(
    conv: str, cell: RandomCell, data: st.DataObject, dense_share: float
) -> None:
    model, genes = make_model(cell, strategy="difference", conv=conv).eval(), st.integers(0, cell.sizes["gene"] - 1)
    model.choose(Choices("difference", dense_share=dense_share))
    expected, got = [], []
    for _ in range(3):
        shared = tuple(data.draw(st.lists(genes, min_size=1, max_size=2, unique=True)))
        others = data.draw(st.lists(st.lists(genes, max_size=2), min_size=1, max_size=4))
        batch = GenotypeBatch.from_lists([[*shared, *more] for more in others])
        expected += predict(model, [batch])
        batch = dataclasses.replace(batch, shared=shared)
        got += predict(model, [batch])
        # Where gradients are wanted, what strains share makes no difference.
        torch.testing.assert_close(model(batch).phenotypes.detach(), expected[-1], rtol=1e-10, atol=1e-10)
    for x, y in zip(got, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-10)
