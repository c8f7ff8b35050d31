"""The set operator model: against plain loops, as a function of sets, its kept encoding, what it refuses."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dglcell.models.cell_model import SetOperator
from dglcell.models.config import OPERATOR_HEADS, OPERATORS, SetOperatorConfig
from dglcell.models.model import make_model
from dglcell.models.terms import scores
from dglcell.models.terms.scores import DeletionAttention
from dglcell.perturbation.genotype import GenotypeBatch
from tests.examples import examples
from tests.models.plain_network import Parameters, encode, left_of
from tests.random_cells import RandomCell, genotypes_of, nine_network_cell, random_cells, randomise

TOLERANCE = {"atol": 1e-10, "rtol": 1e-10}
STRAINS = [[0, 1, 2], [], [3, 4], [5], [*range(6)]]


# The model strain by strain, in plain torch with loops and no dglcell layer.


def attended(p: Parameters, x: Tensor, deleted: list[int], heads: int) -> Tensor:
    """Every gene's state after it has attended to the deleted ones, gene by gene."""
    query, key, value = (p.linear(f"terms.operator.attention.{name}", x) for name in ("query", "key", "value"))
    wide = x.shape[1] // heads
    mixed = torch.zeros_like(x)
    for n in range(len(x)):
        for head in range(heads):
            part = slice(head * wide, (head + 1) * wide)
            weights = [math.exp(float(query[n, part] @ key[j, part]) / math.sqrt(wide)) for j in deleted]
            for weight, j in zip(weights, deleted, strict=True):
                mixed[n, part] += weight / (1 + sum(weights)) * value[j, part]
    return x + p.linear("terms.operator.attention.out", mixed)


def pool(p: Parameters, x: Tensor, gate_of: Tensor) -> Tensor:
    """Attention pooling of some genes, with gates from their wild-type states."""
    if len(x) == 0:
        return torch.zeros_like(p.values["terms.operator.pooling.value.bias"])  # as in every pooling over no node
    gate = p.linear("terms.operator.pooling.gate.2", F.gelu(p.linear("terms.operator.pooling.gate.0", gate_of)))[:, 0]
    return p.linear("terms.operator.pooling.value", torch.softmax(gate, 0) @ x)


def global_part(p: Parameters, x: Tensor, deleted: list[int], heads: int) -> tuple[Tensor, Tensor]:
    """[H] difference of pooled states, [T] prediction."""
    kept = [n for n in range(len(x)) if n not in deleted]
    z = pool(p, x, x) - pool(p, attended(p, x, deleted, heads)[kept], x[kept])
    return z, p.linear("terms.operator.head.2", F.gelu(p.linear("terms.operator.head.0", z)))


def factorisation_part(p: Parameters, x: Tensor, deleted: list[int]) -> Tensor:
    """[T] effects and products, pair by pair."""
    name = "terms.genes.head.factorisation"
    effects = p.linear(f"{name}.effect", x) + p.values.get(f"{name}.own_effects", 0)
    vectors = p.linear(f"{name}.vector", x) if f"{name}.vector.weight" in p.values else x
    vectors = vectors + p.values.get(f"{name}.own_vectors", 0)
    score = sum((effects[i] for i in deleted), effects.new_zeros(effects.shape[1]))
    for position, i in enumerate(deleted):
        for j in deleted[:position]:
            score = score + p.linear(f"{name}.score", vectors[i] * vectors[j])
    return score


@torch.no_grad()
def plain_parts(model, cell: RandomCell, strain: list[int]) -> dict[str, Tensor]:
    """Return what the model gives for one strain: its two parts and z_p."""
    p, x = Parameters(model), encode(model, cell, left_of(cell, {}))["gene"]
    deleted = list(dict.fromkeys(strain))
    z, prediction = global_part(p, x, deleted, OPERATOR_HEADS)
    return {"difference": z, "operator": prediction, "genes": factorisation_part(p, x, deleted)}


def make(cell, outputs: int = 2, **changes) -> SetOperator:
    """Return a model in double precision with random weights."""
    base = {"hidden": 8, "layers": 2, "local_heads": 2, "operator": "both", "local_kind": "both"}
    config = SetOperatorConfig(**{**base, "local_deviations": True, **changes})
    config.validate()
    torch.manual_seed(0)
    model = make_model(config, cell, outputs).double()
    assert isinstance(model, SetOperator)
    return randomise(model)


def predict(model: SetOperator, strains: list[list[int]]) -> Tensor:
    return model(GenotypeBatch.from_lists(strains)).phenotypes


@examples(13)
@given(
    data=st.data(),
    cell=random_cells(),
    conv=st.sampled_from(["gin", "sage"]),
    gin_layers=st.sampled_from([0, 2]),
    local_factors=st.sampled_from([None, 3]),
    local_deviations=st.booleans(),
    block=st.sampled_from([1, 40, 1 << 20]),
)
def test_parts_equal_a_plain_network_strain_by_strain(data, cell: RandomCell, block: int, **changes) -> None:
    strains = [*data.draw(genotypes_of(cell)), [], [*range(cell.sizes["gene"])]]
    model = make(cell.resident, local_kind="factorisation", **changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores, "BLOCK_LOGITS", block)
        got = model(GenotypeBatch.from_lists(strains))
    expected = [plain_parts(model, cell, strain) for strain in strains]
    for name, part in {"difference": got.embedding, **got.parts}.items():
        np.testing.assert_allclose(part.detach().numpy(), np.stack([e[name] for e in expected]), **TOLERANCE)
    torch.testing.assert_close(got.phenotypes, got.parts["operator"] + got.parts["genes"])


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("combination", ["sum", "mean"])
def test_every_parameter_gets_a_finite_gradient(operator: str, combination: str) -> None:
    model = make(nine_network_cell(6), operator=operator, metabolism=False, combination=combination)
    predict(model, STRAINS).sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()] == []


def test_an_untrained_model_predicts_about_the_mean_whatever_its_embeddings_are() -> None:
    for sd, kind in itertools.product((0.02, 0.1), ("hyper_sagnn", "factorisation", "both")):
        config = SetOperatorConfig(
            operator="both", local_kind=kind, embedding_std=sd, metabolism=False, layers=1, cross_relation="mean"
        )
        torch.manual_seed(0)
        model = make_model(config, nine_network_cell(500), 1)
        assert isinstance(model, SetOperator)
        table = model.encoder.embeddings["gene"].weight
        assert table.std().item() == pytest.approx(sd, rel=0.02)
        # Of the sum of two parts; their mean is within 0.5.
        assert predict(model, [[b, b + 1] for b in range(200)]).square().mean().sqrt() < 1.0


def test_only_an_operator_that_pools_gives_an_embedding() -> None:
    for operator, deletions in itertools.product(OPERATORS, (0, 2)):
        model = make(nine_network_cell(6), operator=operator, metabolism=False)
        embedding = model(GenotypeBatch.from_lists([list(range(deletions))])).embedding
        assert ("embedding" in model.config.provides()) == (embedding is not None)


def test_logits_beyond_what_exponentials_can_hold() -> None:
    query, key = torch.ones(1, 2, 1), torch.tensor([[[400.0], [399.0], [-400.0]]])
    slot, present = torch.tensor([[0, 1], [2, 0], [2, 2]]), torch.tensor([[True, True], [True, True], [True, False]])
    got = scores.pooled_shares(query, key[:, slot], present, torch.ones(2, 3))
    share = 1 / (1 + math.exp(-1))
    expected = 2 * torch.tensor([[[share, 1 - share]], [[0, 1]], [[0, 0]]])
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-6)


def test_half_precision_is_summed_in_single(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "BLOCK_LOGITS", 100)
    torch.manual_seed(0)
    layer, x, weight = DeletionAttention(8, 2), torch.randn(20, 8), torch.rand(20, 6)
    batch = GenotypeBatch.from_lists(torch.randint(0, 20, (6, 2)).tolist()).padded()

    def both(half: bool) -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            out = layer(x, weight, *batch).float()
            return [out.detach(), *torch.autograd.grad(out.square().sum(), list(layer.parameters()))]

    for got, expected in zip(both(half=True), both(half=False), strict=True):
        assert (got - expected).abs().max() <= 0.05 * expected.abs().max()


class LargestResult(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operator makes (views do not count)."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        held = {x.untyped_storage().data_ptr() for x in args if isinstance(x, Tensor)}
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, Tensor) and x.untyped_storage().data_ptr() not in held:
                self.largest = max(self.largest, x.untyped_storage().nbytes() // x.element_size(), math.prod(x.shape))
        return out


def test_no_tensor_has_a_state_for_every_gene_and_strain() -> None:
    genes, strains = 50, 40
    layer = DeletionAttention(64, 2)
    batch = GenotypeBatch.from_lists(torch.randint(0, genes, (strains, 2)).tolist()).padded()
    with LargestResult() as results:
        layer(torch.randn(genes, 64, requires_grad=True), torch.rand(genes, strains), *batch).sum().backward()
    # Two heads, two deleted genes and the key of no deletion.
    assert results.largest <= genes * strains * 2 * 3
