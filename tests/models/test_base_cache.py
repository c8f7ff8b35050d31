"""Evaluation computes the wild type once: the same numbers, for any batches, and anew when a weight changes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.models.model import StrainModel
from dglcell.nn.config import CROSS_RELATION
from dglcell.perturbation.execution import Choices
from dglcell.perturbation.genotype import GenotypeBatch
from tests.examples import examples
from tests.models.test_dango import small_dango
from tests.models.test_hetero_cell import nine_network_cell
from tests.models.test_set_operator import make as set_operator
from tests.random_cells import SUMMING, RandomCell, make_cell, random_cells, randomise


def make_model(cell: RandomCell, **changes: object) -> HeteroCell:
    """Return a small model that starts away from zero, in evaluation mode."""
    base = {"hidden": 8, "layers": 2, "local_heads": 2, "pool": ["gene", "reaction"], "strategy": "difference"}
    return randomise(HeteroCell(cell.resident, HeteroCellConfig(**{**base, **changes})).double().eval())


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
    model = make_model(cell, conv=conv, cross_relation=cross_relation, residual=residual)
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


def load_by_assignment(model: StrainModel) -> None:
    load(model, assign=True)


def load_as_part(model: StrainModel) -> None:
    load(nn.ModuleDict({"model": model}))


def replace_twice(model: StrainModel) -> None:
    """The second time the memory of the first weights would be free again."""
    for _ in range(2):
        for parameter in model.parameters():
            parameter.data = 1.5 * parameter.data


def write_behind_autograd_and_train(model: StrainModel) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(1.5)
    model.train().eval()


def change_dtype(model: StrainModel) -> None:
    write_behind_autograd_and_train(model.float())
    model.double()


MODELS: dict[str, Callable[[], StrainModel]] = {
    "hetero_cell": lambda: make_model(make_cell()),
    "set_operator": lambda: set_operator(nine_network_cell(6), metabolism=False).eval(),
    "dango": lambda: randomise(small_dango().double()).eval(),
}
CHANGES = [step, load, load_by_assignment, load_as_part, replace_twice, randomise, write_behind_autograd_and_train]


@pytest.mark.parametrize("change", [*CHANGES, change_dtype], ids=lambda change: change.__name__)
@pytest.mark.parametrize("kind", MODELS)
def test_it_is_given_up_when_weights_change(kind: str, change: Callable[[StrainModel], Any]) -> None:
    model = MODELS[kind]()
    before = predict(model, [BATCH])[0]
    other = copy.deepcopy(model)
    change(model)
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

    return {genes: places(kept) for genes, kept in model._base_cache._lists.items()}


@pytest.mark.parametrize("strategy", ["difference", "node_mask"])
def test_it_is_kept_in_evaluation_only(strategy: str) -> None:
    model = make_model(make_cell(), strategy=strategy)
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
    model, genes = make_model(cell, conv=conv), st.integers(0, cell.sizes["gene"] - 1)
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
