"""Parts of predicted changes: they sum to what the model's own forward pass says, for all kinds of layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dglcell.checks import LEAST_STRENGTH
from dglcell.data.transform import Normaliser
from dglcell.errors import ConfigError
from dglcell.explanations.split import ALONE, BALANCE, CONDITIONS, GRAPH, MEASURED, NULLS, TOGETHER, Explainer, Split
from dglcell.graph.cell import build_cell
from dglcell.graph.config import CellConfig
from dglcell.graph.resident import ResidentCell
from dglcell.models.config import CONVS, DangoConfig, HeteroCellConfig
from dglcell.models.dango import Dango
from dglcell.models.hetero_cell import HeteroCell
from dglcell.nn.config import CROSS_RELATION
from dglcell.nn.heads import AttentionPooling
from dglcell.perturbation.genotype import GenotypeBatch
from tests.examples import examples
from tests.nn.test_flux_rounds import made_model
from tests.random_cells import RandomCell, genotypes_of, random_cells, resident_cell

SMALL = {"hidden": 8, "local_heads": 2, "pool": ["gene", "reaction", "metabolite"]}


def random_model(cell: RandomCell, **changes: Any) -> HeteroCell:
    """In float64, with parameters that are neither 0 nor 1."""
    config = HeteroCellConfig(**{**SMALL, **changes})
    config.validate()
    model = HeteroCell(cell.resident, config, 2).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
    return model.eval()


def check_complete(
    model: HeteroCell, strains: list[Any], conditions: Tensor | None = None, tolerance: float = 1e-10
) -> list[Split]:
    """The parts, and the shares at every cut, sum to the change that the model itself predicts."""
    batch = replace(GenotypeBatch.from_lists(strains), conditions=conditions)
    wild_type = replace(GenotypeBatch.from_lists([[]] * len(strains)), conditions=conditions)
    with torch.no_grad():
        change_BT = (model(batch).phenotypes - model(wild_type).phenotypes).double()
    found = Explainer(model, edges=True)(batch)
    scale = max(1.0, float(change_BT.abs().max()))
    for split, change_B in zip(found, change_BT.T, strict=True):
        torch.testing.assert_close(split.change_B, change_B, atol=tolerance * scale, rtol=0)
        assert float(split.rest_B.abs().max()) <= tolerance * scale
        for layer in range(len(model.encoder.layers) + 1):
            cut_B = torch.zeros(len(strains), dtype=torch.float64)
            for rows, share_K in split.rows:
                if rows.relation is None and rows.layer == layer:
                    cut_B.index_add_(0, rows.index.strains % len(strains), share_K)
            cut_B += sum(share.sum(0) for removed, share in split.removed if removed.layer > layer)
            assert float((cut_B - split.parts[GRAPH]).abs().max()) <= tolerance * scale
        check_edges(model.cell, split, tolerance * scale)
    return found


def check_edges(cell: ResidentCell, split: Split, tolerance: float) -> None:
    """What the in-edges of each node carry sums to the share of what it receives."""
    received = {(rows.layer, rows.relation): (rows, share_K) for rows, share_K in split.rows if rows.relation}
    assert {(edges.layer, edges.relation) for edges, _ in split.edges} == set(received)
    for edges, share_P in split.edges:
        rows, share_K = received[edges.layer, edges.relation]
        by_target_K = torch.zeros_like(share_K).index_add_(0, edges.target_P, share_P)
        assert float((by_target_K - share_K).abs().max()) <= tolerance
        assert torch.equal(cell[edges.relation].dst[edges.edge_P], rows.index.nodes[edges.target_P])
        assert torch.equal(edges.strain_P, rows.index.strains[edges.target_P])


@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize("cross_relation", CROSS_RELATION)
@examples(3)
@given(
    data=st.data(),
    cell=random_cells(),
    gin_layers=st.integers(0, 2),
    combination=st.sampled_from(["sum", "mean", "gated"]),
    local_kind=st.sampled_from(["hyper_sagnn", "factorisation", "both"]),
    residual=st.booleans(),
    norm=st.sampled_from(["layer", "rms", "none"]),
    activation=st.sampled_from(["relu", "gelu", "silu", "elu", "tanh"]),
    layers=st.integers(0, 3),
    pool=st.sampled_from([["gene"], ["reaction"], ["metabolite", "gene"], ["gene", "reaction", "metabolite"]]),
    local_head=st.booleans(),
    weakens=st.booleans(),
)
def test_parts_sum_to_the_predicted_change(
    data: Any, cell: RandomCell, weakens: bool, conv: str, cross_relation: str, **changes: Any
) -> None:
    strains: list[Any] = data.draw(genotypes_of(cell))
    if not changes["local_head"]:
        changes["combination"] = "none"
    if weakens:
        strength = st.one_of(st.just(0.0), st.floats(LEAST_STRENGTH, 2))
        strains = [{gene: data.draw(strength) for gene in strain} for strain in strains]
    check_complete(random_model(cell, conv=conv, cross_relation=cross_relation, **changes), strains)


STRAINS: list[Any] = [[], [0], [0, 1], [5, 9, 20]]


def textbook_model(seed: int = 0, **changes: Any) -> HeteroCell:
    """A model of E. coli core in float32 with random weights."""
    torch.manual_seed(seed)
    cell = ResidentCell.of(build_cell(CellConfig(model="textbook")))
    small = {"hidden": 8, "layers": 2, "local_heads": 2, "pool": ["reaction", "metabolite"]}
    model = HeteroCell(cell, HeteroCellConfig(**{**small, **changes}), 2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


def test_single_precision_leaves_a_millionth() -> None:
    check_complete(textbook_model(), STRAINS, tolerance=1e-5)


@pytest.mark.parametrize("link", ["log", "logistic", "saturation", "minimum", "bounded"])
@pytest.mark.parametrize("combination", ["sum", "gated"])
def test_links_and_measured_strains(link: str, combination: str) -> None:
    model = textbook_model(link="minimum" if link not in ("minimum", "bounded") else link, combination=combination)
    model = model.double()
    assert model.link is not None
    model.link.choose([link, "identity"], torch.tensor([0.5, 0.25]), torch.tensor([2.0, 4.0]))
    assert model.link.measured is not None
    measured = GenotypeBatch.from_lists([[0], [1], [0, 1, 2]])
    labels = torch.tensor([[0.5, 0.1], [0.25, 0.1], [0.1, 0.0]], dtype=torch.float64)
    model.link.measured.remember(model.cell, measured, labels)
    found = check_complete(model, STRAINS)
    assert bool((found[0].parts[MEASURED] != 0).any()) == (link in ("minimum", "bounded"))


def test_a_logistic_normaliser_is_part_of_what_is_split() -> None:
    model = textbook_model().double()
    normaliser = Normaliser("logistic", torch.zeros(2), torch.ones(2)).double()
    found = Explainer(model, normaliser)(GenotypeBatch.from_lists(STRAINS))
    expected = normaliser.restore(model(GenotypeBatch.from_lists(STRAINS)).phenotypes)
    for t, split in enumerate(found):
        torch.testing.assert_close(split.predicted_B, expected[:, t].detach())
        assert float(split.rest_B.abs().max()) < 1e-10


def test_growth_by_flux_balance_is_a_part_of_its_own() -> None:
    model = made_model(256)
    with torch.no_grad():
        for parameter in [*model.global_head.parameters(), *model.pools.parameters()]:
            parameter.normal_(std=0.3)
    found = check_complete(model.eval(), STRAINS, tolerance=1e-5)
    assert set(found[0].parts) == {GRAPH, BALANCE, MEASURED}
    assert float(found[0].parts[BALANCE].abs().max()) > 0.01


def test_conditions_count_beside_the_wild_type_in_the_same_conditions() -> None:
    cell = resident_cell({("gene", "physical", "gene"): ([0, 1, 2, 3], [1, 2, 3, 0])}, {"gene": 4})
    seen = {"medium": ["LB", "MOPS"], "temperature": []}
    config = HeteroCellConfig(hidden=8, layers=1, local_heads=2, conditions=seen, strength_curves=True, pool=["gene"])
    torch.manual_seed(0)
    model = HeteroCell(cell, config, 2).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    strains: list[Any] = [{0: 0.3, 1: 0.0}, {2: 1.5}, {}]
    conditions = torch.tensor([[0.0, 30.0], [1.0, 37.0], [1.0, 30.0]], dtype=torch.float64)
    found = check_complete(model, strains, conditions)
    assert bool((found[0].parts[CONDITIONS][:2] != 0).all())
    assert all(float(share[2].abs()) < 1e-12 for share in found[0].parts.values())


def test_a_gene_alone_adds_nothing_together() -> None:
    found = check_complete(textbook_model(local_kind="both").double(), STRAINS)[0]
    assert found.parts[TOGETHER][:2].abs().max() < 1e-12
    assert (found.parts[TOGETHER][2:].abs() > 1e-6).all()
    assert (found.parts[ALONE][1:].abs() > 1e-6).all()


class Wave(torch.nn.Module):
    """A function without a rule."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x) + torch.atan(x)


class Steps(torch.nn.Module):
    """A function that no derivative tells the differences of."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.floor(8 * x)


def with_pool_of(function: torch.nn.Module) -> HeteroCell:
    model = textbook_model().double()
    pooling = model.pools["reaction"]
    assert isinstance(pooling, AttentionPooling)
    assert isinstance(pooling.gate, torch.nn.Sequential)
    pooling.gate[1] = function
    return model


def test_smooth_functions_without_a_rule_are_split_along_the_way() -> None:
    check_complete(with_pool_of(Wave()), STRAINS)


def test_what_is_left_of_functions_that_are_not_smooth_is_stated() -> None:
    model = with_pool_of(Steps())
    found = Explainer(model)(GenotypeBatch.from_lists(STRAINS))[0]
    whole = sum(found.parts.values()) + found.rest_B
    torch.testing.assert_close(whole, found.change_B)
    assert float(found.rest_B[1:].abs().max()) > 1e-6


def test_a_strain_has_the_same_shares_in_any_batch() -> None:
    model = textbook_model().double()
    explainer = Explainer(model)
    together = explainer(GenotypeBatch.from_lists(STRAINS))[0]
    alone = explainer(GenotypeBatch.from_lists(STRAINS[2:3]))[0]
    for name, share in alone.parts.items():
        torch.testing.assert_close(share, together.parts[name][2:3])


def test_explaining_leaves_the_model_as_it_was() -> None:
    model = textbook_model()
    trained = [parameter.requires_grad for parameter in model.parameters()]
    before = model(GenotypeBatch.from_lists(STRAINS)).phenotypes
    Explainer(model.train())(GenotypeBatch.from_lists(STRAINS))
    assert model.training
    assert [parameter.requires_grad for parameter in model.parameters()] == trained
    assert torch.equal(model.eval()(GenotypeBatch.from_lists(STRAINS)).phenotypes, before)


def test_other_models_are_refused() -> None:
    cell = resident_cell({("gene", "string_fusion", "gene"): ([0, 1], [1, 0])}, {"gene": 2})
    with pytest.raises(ConfigError, match=r"this model cannot be explained\n  got:      `model.name: dango`"):
        Explainer(Dango(cell, DangoConfig(hidden=8, heads=2)))


def test_null_models_have_their_share() -> None:
    model = textbook_model(null_share=0.25).double()
    assert model.null_share is not None
    values = torch.tensor([[1.0, 1.0], [0.5, 0.0], [0.25, 2.0], [0.0, 3.0]]).numpy()
    model.null_share.read = lambda packed: lambda genes, offsets, *_: values[offsets[1:] - offsets[:-1]]
    found = check_complete(model, [[], [0], [0, 1], [5, 9, 20]])
    expected = 0.25 * (values - values[:1])
    for t, split in enumerate(found):
        torch.testing.assert_close(split.parts[NULLS], torch.tensor(expected[:, t]).double())


def test_growth_media_and_learned_strengths() -> None:
    media = {"glucose": {}, "pyruvate": {"EX_glc__D_e": 0.0, "EX_pyr_e": 20.0}}
    cell = ResidentCell.of(build_cell(CellConfig(model="textbook", media=media)))
    seen = {"medium": ["glucose", "pyruvate"], "allele": ["a", "b"]}
    config = HeteroCellConfig(
        hidden=8, layers=2, local_heads=2, pool=["reaction"], conditions=seen, strength_from=["allele"]
    )
    torch.manual_seed(0)
    model = HeteroCell(cell, config, 1).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    conditions = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    check_complete(model, [{0: 0.3}, {0: 0.3, 5: 0.0}, {20: 0.5}], conditions)


def test_heads_of_nodes_change_no_phenotype() -> None:
    check_complete(textbook_model(nodes={"flux": "reaction"}).double(), STRAINS)
