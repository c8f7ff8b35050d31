"""Attribution mode: sources sum to the change, agree with a calculation by hand, and leave gradients as they are."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dglcell.data.dataset import Normaliser
from dglcell.explain import GRAPH, POOLING, Attributed, attribute_batch
from dglcell.graph.resident import ResidentCell
from dglcell.models.cell_model import HeteroCell, SetOperator
from dglcell.models.config import DangoConfig, HeteroCellConfig, ModelConfig, SetOperatorConfig
from dglcell.models.dango import Dango
from dglcell.models.model import StrainModel
from dglcell.models.terms.term import Seen, Term
from dglcell.nn.config import LINKS
from dglcell.perturbation.attribution import active, attributing
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.rules import PerturbedTensor
from tests.random_cells import EDGES, SUMMING, WEIGHTED, randomise, resident_cell, results

COMBINATIONS = ("sum", "mean", "pairwise_interaction")
MEDIA = {"medium": ["glucose", "pyruvate"]}

# What of the model is combined with every convolution and combination of relations.
PARTS: dict[str, dict[str, Any]] = {
    "one pool": dict(pool=["gene"], local_head=False, combination="none"),
    "three pools": dict(pool=["gene", "reaction", "metabolite"], local_head=False, combination="none", norm="none"),
    "sum of heads": dict(local_head=True, combination="sum", residual=False),
    "mean of heads": dict(local_head=True, combination="mean", local_kind="factorisation", activation="relu"),
    **{link: dict(local_head=True, local_kind="both", link=link, pool=["reaction"]) for link in list(LINKS)[1:]},
    "messages of the wild type": dict(messages="wild_type", pool=["gene", "reaction"], local_head=True),
}
STRAINS: dict[str, list[Any]] = {
    "deletions": [[0, 1], [5], [7, 9, 2], []],
    "activities": [{0: 0.3, 1: 0.0}, {5: 2.5}, {7: 0.5, 9: 0, 2: 0.1}, {3: 1.0}],
    "media": [[0, 1], [5], [7, 9, 2], []],
}


def small_cell() -> ResidentCell:
    """Ten genes, eight reactions and six metabolites, with two media and edges by chance."""
    sizes, rng = {"gene": 10, "reaction": 8, "metabolite": 6}, np.random.default_rng(0)
    edges = {}
    for relation, (source, target) in EDGES.items():
        ends = rng.integers(0, sizes[source], 20), rng.integers(0, sizes[target], 20)
        weight = torch.from_numpy(rng.normal(size=20)) if relation[1] in WEIGHTED else None
        edges[relation] = (*map(torch.from_numpy, ends), weight)
    return ResidentCell(sizes, edges, media={"glucose": {0: 1.0, 3: 0.5}, "pyruvate": {0: 0.0, 3: 2.0}})


def fresh(config: ModelConfig, kind: type[StrainModel]) -> StrainModel:
    """A model of two phenotypes in float64 with random weights, whose link knows two measured strains."""
    torch.manual_seed(0)
    model = randomise(kind(small_cell(), config, 2, None), std=0.3).double().eval()  # type: ignore[call-arg]
    assert ("link" in model.terms) == (getattr(config, "link", "identity") != "identity")
    if "link" in model.terms:
        link = model.terms["link"]
        link.shift, link.scale = torch.tensor([0.5, 0.25]), torch.tensor([2.0, 4.0])
        if link.measured is not None:
            labels = torch.tensor([[0.5, 0.1], [0.7, 0.9]], dtype=torch.float64)
            link.measured.remember(model.cell, GenotypeBatch.from_lists([[0], [5, 6]]), labels)
    return model.requires_grad_(False)


def batch_of(what: str) -> GenotypeBatch:
    batch = GenotypeBatch.from_lists(STRAINS[what])
    return replace(batch, covariates=torch.tensor([[1.0], [0.0], [1.0], [1.0]])) if what == "media" else batch


def split(model: StrainModel, batch: GenotypeBatch) -> Attributed:
    return attribute_batch(model, Normaliser("none", torch.zeros(2), torch.ones(2)).double(), batch)


def wild_types(batch: GenotypeBatch) -> GenotypeBatch:
    nothing = GenotypeBatch.from_lists([[]] * batch.num_strains)
    return replace(nothing, covariates=batch.covariates)


def check(model: StrainModel, batch: GenotypeBatch) -> Attributed:
    """Compare with the model outside the mode, and sum every table."""
    found = split(model, batch)
    wild_type, strains = (model(one).phenotypes.numpy() for one in (wild_types(batch), batch))
    np.testing.assert_allclose(found.change, strains - wild_type, atol=1e-10)
    assert np.abs(found.change[:3]).max() > 1e-3
    assert not found.sources["term"].str.startswith("remainder").any()
    of_graph = found.sources[found.sources["term"] == GRAPH]
    np.testing.assert_allclose(summed(found.sources, found), found.change, atol=1e-10)
    if len(found.nodes):
        np.testing.assert_allclose(summed(found.nodes, found), summed(of_graph, found), atol=1e-10)
    return found


def summed(table: Any, found: Attributed) -> np.ndarray:
    total = np.zeros_like(found.change)
    np.add.at(total, (table["strain"].astype(int), table["phenotype"].astype(int)), table["change"])
    return total


# Every part of a model meets every kind of strains, in two of the six networks.
CASES = [
    (conv, combination, parts, list(STRAINS)[(row + column) % 3])
    for row, (conv, combination) in enumerate(itertools.product(SUMMING, COMBINATIONS))
    for column, parts in enumerate(PARTS)
]


@pytest.mark.parametrize(("conv", "combination", "parts", "what"), CASES)
def test_sources_sum_to_the_change(conv: str, combination: str, parts: str, what: str) -> None:
    if what != "deletions" and parts in ("minimum", "bounded"):
        what = "deletions"  # which is all that these links compare
    options = {"conv": conv, "cross_relation": combination, "hidden": 8, "layers": 2, **PARTS[parts]}
    if what == "media":
        options["covariates"] = MEDIA
    if what == "activities":
        options["activity_curves"] = True
    check(fresh(HeteroCellConfig(**options), HeteroCell), batch_of(what))


@pytest.mark.parametrize("what", ["deletions", "activities"])
@pytest.mark.parametrize("operator", ["both", "local"])
def test_so_do_those_of_the_other_models(operator: str, what: str) -> None:
    found = check(fresh(SetOperatorConfig(hidden=8, layers=1, operator=operator), SetOperator), batch_of(what))
    assert set(found.sources["term"]) == {"genes"}
    config = DangoConfig(hidden=8, heads=2, zero_weights={"physical": 1.0, "empty": 1.0})
    assert set(check(fresh(config, Dango), batch_of(what)).sources["term"]) == {"genes"}


class Own(Term):
    """A term of a user's own, which reads the wild type's states of changed genes and has a score for none."""

    sees_genes = True

    def forward(self, seen: Seen) -> Tensor:
        return 0.5 + (seen.x_BKH.sum(2) * seen.strains.padded()[1]).sum(1, keepdim=True).tanh().expand(-1, 2)

    def of_wild_type(self, like_BT: Tensor) -> Tensor:
        return like_BT.new_full((1, 2), 0.5)


def test_a_term_of_ones_own_is_a_source_by_its_score() -> None:
    torch.manual_seed(0)
    config = HeteroCellConfig(hidden=8, layers=1)
    model = randomise(HeteroCell(small_cell(), config, 2, terms=["graph", Own]), 0.3).double().eval()
    found = check(model.requires_grad_(False), batch_of("deletions"))
    assert found.sources["term"].nunique() == 2
    own = summed(found.sources[found.sources["term"] != GRAPH], found)
    score = list(model.terms.values())[1]
    expected = model(batch_of("deletions")).parts[score.name] - 0.5
    np.testing.assert_allclose(own, expected.numpy(), atol=1e-12)


def test_a_logistic_normaliser_is_part_of_the_change() -> None:
    model = fresh(HeteroCellConfig(hidden=8, layers=1, combination="none", local_head=False), HeteroCell)
    normaliser = Normaliser("logistic", torch.zeros(2), torch.ones(2)).double()
    batch = batch_of("deletions")
    found = attribute_batch(model, normaliser, batch)
    expected = model(batch).phenotypes.sigmoid() - model(wild_types(batch)).phenotypes.sigmoid()
    np.testing.assert_allclose(found.change, expected.numpy(), atol=1e-12)
    np.testing.assert_allclose(summed(found.sources, found), found.change, atol=1e-12)


def test_two_nodes_by_hand() -> None:
    """Gene 0 sends to gene 1, is deleted, and leaves a mean over both; one GELU stands between."""
    relation = ("gene", "physical", "gene")
    cell = resident_cell({relation: ([0], [1])}, {"gene": 2}, {relation: [3.0]}).double()
    config = HeteroCellConfig(
        hidden=2, layers=1, metabolism=False, pool=["gene"], local_head=False, combination="none", norm="none",
        residual=False, preprocessor_layers=0, conv="gin", conv_options=None, gin_layers=1,
    )  # fmt: skip
    model = HeteroCell(cell, config).double().eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.zero_()
    x = torch.tensor([[0.7, -0.2], [0.1, 0.4]], dtype=torch.float64)
    model.encoder.embeddings["gene"].weight.copy_(x)
    model.encoder.layers[0].convs[0].conv.mlp[0].weight.copy_(torch.eye(2))
    model.terms["graph"].pools["gene"].value.weight.copy_(torch.eye(2))
    model.terms["graph"].head[0].weight.copy_(torch.eye(2))
    model.terms["graph"].head[2].weight.fill_(1.0)
    units, batch = Normaliser("none", torch.zeros(1), torch.ones(1)).double(), GenotypeBatch.from_lists([[0]])
    found = attribute_batch(model, units, batch)

    def gelu(a: Tensor) -> Tensor:
        return a * 0.5 * (1 + torch.erf(a / 2**0.5))

    # Node 1 has gelu(x1 + 3 x0), then gelu(x1); pooled: the mean of both nodes, then node 1 alone; times 2 for N.
    h0, before, after = gelu(x[0]), gelu(x[1] + 3 * x[0]), gelu(x[1])
    change = after - before
    z = -2 * (after - (h0 + before) / 2)
    head = gelu(z) / z  # the head has gelu(0) = 0 for the wild type
    # The share of node 1 goes from 1/2 to 1: of its change the middle, 3/4, belongs to the message.
    message = float((head * -2 * 0.75 * change).sum())
    leaving = float(gelu(z).sum()) - message
    by_relation = found.sources.set_index("relation")["change"]
    assert by_relation["physical"] == pytest.approx(message, abs=1e-12)
    assert by_relation[POOLING] == pytest.approx(leaving, abs=1e-12)
    assert found.change[0, 0] == pytest.approx(float(gelu(z).sum()), abs=1e-12)
    assert found.sources["target"].tolist() == [1, -1]
    first, _, second = model.terms["graph"].pools["gene"].gate  # now all attend to the gene that is lost
    first.weight.copy_(torch.tensor([[-1000.0, 0.0]]))
    first.bias.fill_(5000.0)
    second.weight.fill_(1.0)
    found = attribute_batch(model, units, batch)
    np.testing.assert_allclose(summed(found.sources, found), found.change, atol=1e-12)


FUNCTIONS = {
    "sigmoid": lambda x, y: torch.sigmoid(x),
    "silu": lambda x, y: torch.nn.functional.silu(x),
    "power": lambda x, y: x.exp().pow(-0.7),
    "largest": torch.maximum,
    "product": lambda x, y: x * y,
    "quotient": lambda x, y: x / y.exp(),
    "power of powers": lambda x, y: x.exp() ** y,
    "norm": lambda x, y: torch.nn.functional.layer_norm(x + y, [5]),
    "softmax": lambda x, y: torch.softmax(x, 1) * y,
    "choice": lambda x, y: torch.where(torch.tensor([True, False, True, False, True]), x * y, y),
}


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_rule_is_complete(name: str, number: int) -> None:
    """``number`` entries of a row do not differ, where the secant is the derivative."""
    generator = torch.Generator().manual_seed(0)
    (a, b, d, e) = torch.randn(4, 6, 5, dtype=torch.float64, generator=generator).unbind()
    d, e = (x.masked_fill(torch.arange(5) < number, 0).requires_grad_() for x in (d, e))
    function = FUNCTIONS[name]
    with attributing() as found:
        out = function(PerturbedTensor(a, d, 1), PerturbedTensor(b, e, 1))
    weight = torch.randn(out.delta.shape, dtype=torch.float64, generator=generator)
    grads = torch.autograd.grad((out.delta * weight).sum(), (d, e), materialize_grads=True, allow_unused=True)
    given = sum((x * grad).sum().detach() for x, grad in zip((d, e), grads, strict=True))
    expected = (function(a + d, b + e) - function(a, b)).detach()
    torch.testing.assert_close(out.delta.detach(), expected, atol=1e-12, rtol=0)
    assert float(given) == pytest.approx(float((expected * weight).sum()), abs=1e-12)
    assert not found.inexact


class Stepped(torch.nn.Module):
    """A module without a rule, whose derivative says nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.round(10 * x)


def test_a_module_without_a_rule_leaves_a_remainder_with_its_name() -> None:
    model = fresh(HeteroCellConfig(hidden=8, layers=1, combination="none", local_head=False), HeteroCell)
    for conv in model.encoder.layers[0].convs:
        conv.after.append(Stepped())
    batch = batch_of("deletions")
    found = split(model, batch)
    rest = found.sources[found.sources["term"].str.startswith("remainder")]
    assert set(rest["term"]) == {"remainder of round"}
    np.testing.assert_allclose(summed(found.sources, found), found.change, atol=1e-12)
    assert summed(rest, found)[:3].any()
    expected = model(batch).phenotypes - model(wild_types(batch)).phenotypes
    np.testing.assert_allclose(found.change, expected.numpy(), atol=1e-10)


def test_gradients_outside_the_mode_stay_as_they_are() -> None:
    model = fresh(HeteroCellConfig(hidden=8, layers=2, strategy="node_mask"), HeteroCell).requires_grad_(True)
    batch = batch_of("deletions")
    before = results(model, batch)
    with attributing():
        seen: list[Any] = []

        def beside() -> None:
            seen.extend([active(), *results(model, batch)])
            with attributing() as mine:
                seen.append(mine is active())

        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        assert seen.pop() is True
        assert seen[0] is None
        assert active() is not None
        model(batch)
    assert active() is None
    for other in (results(model, batch), seen[1:]):
        assert all(torch.equal(x, y) for x, y in zip(before, other, strict=True))
