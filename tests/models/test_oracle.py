"""Predictions and all gradients equal those of plain torch on every strain's own graph, whatever computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dglcell.checks import LEAST_ACTIVITY
from dglcell.errors import GenotypeError
from dglcell.models.cell_model import HeteroCell, SetOperator
from dglcell.models.config import CONVS, OPERATORS, HeteroCellConfig, SetOperatorConfig
from dglcell.models.terms.link import Link
from dglcell.models.terms.scores import HyperSAGNN
from dglcell.nn.config import CROSS_RELATION, PAIRWISE
from dglcell.perturbation import DGL_STRATEGIES, STRATEGIES, differences
from dglcell.perturbation import states as states_module
from dglcell.perturbation.execution import Choices
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.targets import Targets
from tests.examples import examples
from tests.gpu.devices import as_on_a_gpu, needs_gpu
from tests.models.plain_network import left_of, plain_forward
from tests.random_cells import RandomCell, agree, genotypes_of, random_cells, randomise, resident_cell, results

CPU, GPU_PATHS, GPU = "cpu", "as on a gpu", "cuda"


@dataclass(frozen=True)
class Engine:
    """Limits that change how results are found, but not the results."""

    push_cost: float
    rows_in_block: int

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(differences, "PUSH_COST", self.push_cost)
            patch.setattr(differences, "MARK_COST", self.push_cost)
            patch.setitem(states_module.ROWS_IN_BLOCK, "cpu", self.rows_in_block)
            yield


ENGINES = st.builds(Engine, st.sampled_from([0.0, 2.0, float("inf")]), st.sampled_from([7, 4096]))
DENSE_SHARES = st.sampled_from([0.0, 0.2, 1e9, 1e9])
"""From which share of listed pairs on all are computed."""


Strain = dict[int, Tensor]
"""Gene or reaction → its activity, a scalar of which gradients can be taken."""


def amount(draw: Any, special: bool) -> Tensor:
    """Return an activity; 0 and 1 only where ``special``, as gradients there are of one side."""
    values = st.floats(0.05, 2.0).filter(lambda x: x != 1)
    drawn = draw(st.one_of(st.sampled_from([0.0, 1.0]), values) if special else values)
    return torch.tensor(drawn, dtype=torch.float64, requires_grad=True)


@st.composite
def strains_of(draw: Any, cell: RandomCell, special: bool) -> tuple[list[Strain], list[Strain]]:
    """Weakened genes, and weakened reactions, of a few strains; different numbers, so that no two genes tie."""
    genes, reactions = [], []
    for _ in range(draw(st.integers(1, 4))):
        for into, number in ((genes, cell.sizes["gene"]), (reactions, cell.sizes["reaction"])):
            chosen = draw(st.lists(st.integers(0, number - 1), max_size=4, unique=True))
            into.append({node: amount(draw, special) for node in chosen})
    return genes, reactions


def batch_of(genes: list[Strain], reactions: list[Strain]) -> GenotypeBatch:
    """Return the strains as a batch through which gradients flow."""

    def concatenated(strains: list[Strain]) -> tuple[Tensor, Tensor, Tensor]:
        nodes = torch.tensor([node for strain in strains for node in strain], dtype=torch.int64)
        offsets = torch.tensor([0, *(len(strain) for strain in strains)]).cumsum(0)
        values = [value for strain in strains for value in strain.values()]
        return nodes, offsets, torch.stack(values) if values else torch.zeros(0, dtype=torch.float64)

    nodes, offsets, left = concatenated(genes)
    reaction, starts, own_left = concatenated(reactions)
    own = Targets(reaction, starts, max(map(len, reactions)), own_left)
    return GenotypeBatch(nodes, offsets, max(map(len, genes)), left, reactions=own)


STRAINS = ("deleted", "weakened", "in media")


def strains(data: Any, cell: RandomCell, what: str) -> tuple[list[Strain], list[Strain], GenotypeBatch]:
    """Return the activities of genes and reactions of some strains, and their batch."""
    if what == "deleted":
        lists = data.draw(genotypes_of(cell))
        zero = torch.zeros((), dtype=torch.float64)
        return [dict.fromkeys(genes, zero) for genes in lists], [{} for _ in lists], GenotypeBatch.from_lists(lists)
    genes, reactions = data.draw(strains_of(cell, special=what == "in media"))
    if what == "weakened":
        reactions = [{} for _ in genes]
    return genes, reactions, batch_of(genes, reactions)


def gradients(y: Tensor, model: HeteroCell, *more: Tensor) -> list[Tensor]:
    """Of the sum of squares, on the host."""
    wanted = [*more, *model.parameters()]
    found = torch.autograd.grad(y.square().sum(), wanted, allow_unused=True, materialize_grads=True)
    return [y.detach().cpu(), *(x.cpu() for x in found)]


@pytest.mark.parametrize("what", STRAINS)
@pytest.mark.parametrize("where", [CPU, GPU_PATHS, pytest.param(GPU, marks=needs_gpu)])
@pytest.mark.parametrize("strategy", STRATEGIES)
@examples(4)
@given(
    data=st.data(),
    cell=random_cells(),
    cross_relation=st.sampled_from(CROSS_RELATION),
    cross_relation_layers=st.integers(2, 3),
    gin_layers=st.integers(1, 4),
    residual=st.booleans(),
    layers=st.integers(1, 3),
    recompute=st.sampled_from(["true", "false"]),
    engine=ENGINES,
    dense_share=DENSE_SHARES,
)
def test_a_model_equals_plain_torch_on_the_strains_own_graphs(
    strategy: str, where: str, what: str, data: Any, cell: RandomCell, engine: Engine, dense_share: float,
    **changes: Any,
) -> None:  # fmt: skip
    if strategy in DGL_STRATEGIES and where != CPU:
        pytest.skip("DGL has its own paths on a GPU, and needs a build for it")
    conv = data.draw(st.sampled_from([name for name in CONVS if name != "gatv2" or strategy in DGL_STRATEGIES]))
    norm = "layer" if changes["cross_relation"] == PAIRWISE else "none"
    settings = {"hidden": 8, "local_heads": 2, "pool": ["gene", "reaction"], "cross_relation_norm": norm, "conv": conv}
    config = HeteroCellConfig(**settings, strategy=strategy, **changes)
    config.validate()
    torch.manual_seed(0)
    model = randomise(HeteroCell(cell.resident, config, outputs=2).double())
    model.choose(Choices(strategy, dense_share=dense_share))
    genes, reactions, batch = strains(data, cell, what)
    leaves = [x for strain in genes for x in strain.values()] if what == "weakened" else []
    lefts = [left_of(cell, *strain) for strain in zip(genes, reactions, strict=True)]
    expected = gradients(torch.stack([plain_forward(model, cell, left) for left in lefts]), model, *leaves)
    with engine(), pytest.MonkeyPatch.context() as patch:
        if where == GPU_PATHS:
            as_on_a_gpu(patch)
        device = GPU if where == GPU else CPU
        found = model.to(device)(batch.to(device)).parts["graph"]
        agree(gradients(found, model, *leaves), expected, f"{strategy} {where}")


TOLERANCE = {"atol": 1e-10, "rtol": 1e-10}
SMALL = {"hidden": 8, "layers": 2, "local_heads": 2, "activity_curves": True}
KINDS = st.sampled_from(["hyper_sagnn", "factorisation", "both"])


def set_operator(cell: RandomCell, **changes: Any) -> nn.Module:
    return randomise(
        SetOperator(cell.resident, SetOperatorConfig(**SMALL, local_deviations=True, **changes), 2).double()
    )


def predicted(model: nn.Module, strains: list[Any]) -> Tensor:
    return model(GenotypeBatch.from_lists(strains)).phenotypes


def check_ends(model: nn.Module, strains: list[list[int]], draw: Callable[[Any], Any]) -> None:
    """An activity of 0 is a deletion, in every gradient too; one of 1 is no change; the order of genes is nothing."""
    lost = [dict.fromkeys(strain, 0.0) for strain in strains]
    agree(*(results(model, GenotypeBatch.from_lists(given)) for given in (lost, strains)))
    whole = predicted(model, [dict.fromkeys(strain, 1.0) for strain in strains])
    torch.testing.assert_close(whole, predicted(model, [[]] * len(strains)), **TOLERANCE)
    activity = st.one_of(st.just(0.0), st.floats(LEAST_ACTIVITY, 2))
    some = [{gene: draw(activity) for gene in strain} for strain in strains]
    turned = [dict(reversed(strain.items())) for strain in some]
    assert predicted(model, some).isfinite().all()
    torch.testing.assert_close(predicted(model, turned), predicted(model, some), **TOLERANCE)
    alone = torch.cat([predicted(model, [strain]) for strain in some])
    torch.testing.assert_close(predicted(model, some), alone, **TOLERANCE)


@st.composite
def sets_of(draw: Any, cell: RandomCell) -> list[list[int]]:
    gene = st.integers(0, cell.sizes["gene"] - 1)
    return draw(st.lists(st.lists(gene, min_size=1, max_size=5, unique=True), min_size=1, max_size=3))


@pytest.mark.parametrize("operator", OPERATORS)
@examples(3)
@given(data=st.data(), cell=random_cells(), local_kind=KINDS)
def test_the_ends_of_activity_where_genes_attend(operator: str, data: Any, cell: RandomCell, local_kind: str) -> None:
    check_ends(set_operator(cell, operator=operator, local_kind=local_kind), data.draw(sets_of(cell)), data.draw)


def test_the_ends_of_activity_in_dango() -> None:
    head = randomise(HyperSAGNN(8, 2, layers=2, heads=2, gain=0.5, activation="relu", dropout=0.0).double())
    x = torch.randn(3, 2, 8, dtype=torch.float64)
    removed = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(head(x, removed), head(x, removed > 0), **TOLERANCE)
    assert not head(x, removed)[2].any()


def test_a_link_that_compares_losses_refuses_activities() -> None:
    cell = resident_cell({("gene", "physical", "gene"): ([0], [1])}, {"gene": 2, "reaction": 1, "metabolite": 1})
    config = HeteroCellConfig(**SMALL, pool=["gene"], link="minimum", local_head=False, combination="none")
    model = HeteroCell(cell, config, 1).double()
    link = model.terms["link"]
    assert isinstance(link, Link)
    assert link.measured is not None
    assert model(GenotypeBatch.from_lists([{0: 0.5}])).phenotypes.isfinite().all(), "nothing is measured yet"
    link.measured.remember(model.cell, GenotypeBatch.from_lists([[1]]), torch.full((1, 1), 0.5))
    with pytest.raises(
        GenotypeError,
        match=r"activities cannot be expressed by `model.link: minimum`, which compares lost parts\n"
        r"  got:      strains with weakened genes\n  expected: .*\n  do:       leave .*`model.link: saturation`",
    ):
        model(GenotypeBatch.from_lists([{0: 0.5}]))
