"""Random small cells and genotypes for property tests, and a dense numpy reference that shares no code with dglcell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.resident import ResidentCell
from dglcell.perturbation.genotype import GenotypeBatch

EDGES = {
    ("gene", "physical", "gene"): ("gene", "gene"),
    ("gene", "empty", "gene"): ("gene", "gene"),
    ("gene", "catalyses", "reaction"): ("gene", "reaction"),
    ("reaction", "catalysed_by", "gene"): ("reaction", "gene"),
    ("reaction", "converts", "metabolite"): ("reaction", "metabolite"),
    ("metabolite", "converted_by", "reaction"): ("metabolite", "reaction"),
}
WEIGHTED = ("converts", "converted_by")

Model = TypeVar("Model", bound=nn.Module)

SUMMING = ("gin", "sage")
"""These convolutions run under every strategy; attention needs single edges."""

Changes = dict[tuple[int, int], float]
"""(source, destination) → the activity that a strain leaves of the edge, 0 where it removes the edge."""


def resident_cell(
    edges: Mapping[tuple[str, str, str], tuple[Any, Any]],
    num_nodes: Mapping[str, int],
    weights: Mapping[tuple[str, str, str], Any] | None = None,
) -> ResidentCell:
    """Return a resident cell from anything that becomes tensors."""
    given = weights or {}
    tensors = {
        r: (torch.as_tensor(u, dtype=torch.int64), torch.as_tensor(v, dtype=torch.int64)) for r, (u, v) in edges.items()
    }
    return ResidentCell(
        num_nodes, {r: (*uv, torch.as_tensor(given[r]) if r in given else None) for r, uv in tensors.items()}
    )


def nine_network_cell(genes: int = 6607) -> ResidentCell:
    return resident_cell({("gene", f"network_{i}", "gene"): ([0], [1]) for i in range(9)}, {"gene": genes})


def textbook_cell(*derived: str) -> ResidentCell:
    return ResidentCell.of(build_cell(CellConfig(model="textbook", derived=list(derived))))


def randomise(model: Model, std: float = 0.5) -> Model:
    """Return the model with weights that have none of the zeros and ones of a fresh one."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=std)
    return model


def results(model: nn.Module, batch: GenotypeBatch, *leaves: Tensor) -> list[Tensor]:
    """Return predictions, and the gradients of their squares: of ``leaves`` and of every parameter."""
    prediction = model(batch).phenotypes
    wanted = [*leaves, *model.parameters()]
    found = torch.autograd.grad(prediction.square().sum(), wanted, allow_unused=True, materialize_grads=True)
    return [prediction.detach(), *found]


def gradients(outs: Tensor | Sequence[Tensor], leaves: Sequence[Tensor], retain: bool = False) -> list[Tensor]:
    """Of a fixed combination of the results."""
    outs = [outs] if isinstance(outs, Tensor) else outs
    if not any(x.requires_grad for x in outs):
        return [torch.zeros_like(leaf) for leaf in leaves]
    total = sum((x * torch.cos(torch.arange(x.numel(), dtype=x.dtype)).view_as(x)).sum() for x in outs)
    assert isinstance(total, Tensor)
    return list(torch.autograd.grad(total, leaves, None, retain, allow_unused=True, materialize_grads=True))


def agree(found: Sequence[Tensor], expected: Sequence[Tensor], where: str = "") -> None:
    """To 1e-10 of the largest number: gradients that are zero by symmetry carry the rounding of the largest ones."""
    scale = max([1.0, *(float(x.detach().abs().max()) for x in expected if x.numel())])
    for number, (x, y) in enumerate(zip(found, expected, strict=True)):
        assert x.shape == y.shape
        error = float((x - y).detach().abs().max()) if x.numel() else 0.0
        assert error <= 1e-10 * scale, f"{where}: number {number} differs by {error}"


@dataclass
class RandomCell:
    """Edge arrays and sizes; ``resident`` is the same cell as dglcell holds it."""

    sizes: dict[str, int]
    edges: dict[tuple[str, str, str], tuple[np.ndarray, np.ndarray]]
    weights: dict[tuple[str, str, str], np.ndarray]

    @property
    def resident(self) -> ResidentCell:
        return resident_cell(self.edges, self.sizes, self.weights).double()

    def keep(self, strain: list[int]) -> dict[str, np.ndarray]:
        """Kept nodes of one strain, by the definition: node type → [N] bool."""
        keep = {t: np.ones(n, dtype=bool) for t, n in self.sizes.items()}
        for gene in strain:
            keep["gene"][gene] = False
        for gene, reaction in zip(*self.edges.get(("gene", "catalyses", "reaction"), ((), ())), strict=True):
            if gene in strain:
                keep["reaction"][reaction] = False
        return keep

    def surviving(
        self, relation: tuple[str, str, str], strain: list[int], changes: Changes | None = None
    ) -> list[tuple[int, int, float, float]]:
        """(source, destination, weight, activity) of the edges of the physically reduced graph, one by one."""
        keep = self.keep(strain)
        weights = self.weights.get(relation, np.ones(len(self.edges[relation][0])))
        edges = []
        for u, v, w in zip(*self.edges[relation], weights, strict=True):
            activity = (changes or {}).get((int(u), int(v)), 1.0)
            if keep[relation[0]][u] and keep[relation[2]][v] and activity:
                edges.append((int(u), int(v), float(w), activity))
        return edges

    def adjacency(
        self, relation: tuple[str, str, str], strain: list[int], changes: Changes | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Dense [M, N] weighted adjacency and [M] sums of activities of in-edges of the physically reduced graph."""
        matrix = np.zeros((self.sizes[relation[2]], self.sizes[relation[0]]))
        degree = np.zeros(self.sizes[relation[2]])
        for u, v, w, activity in self.surviving(relation, strain, changes):
            matrix[v, u] += activity * w
            degree[v] += activity
        return matrix, degree


@st.composite
def random_cells(draw: st.DrawFn) -> RandomCell:
    """Cells with self-loops, multi-edges, an empty relation, isolated nodes, complexes, perhaps no metabolites."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ends = {"gene": (1, 12), "reaction": (1, 6), "metabolite": (0, 5)}
    sizes = {node_type: draw(st.integers(*of)) for node_type, of in ends.items()}
    edges, weights = {}, {}
    for relation, (source, destination) in EDGES.items():
        number = 0 if relation[1] == "empty" or not sizes[source] * sizes[destination] else draw(st.integers(0, 30))
        u = rng.integers(0, sizes[source], number)
        v = rng.integers(0, sizes[destination], number)
        if relation[1] == "physical" and number:
            v[0] = u[0]  # a self-loop
            u, v = np.append(u, u[-1]), np.append(v, v[-1])  # a multi-edge
        edges[relation] = (u, v)
        if relation[1] in WEIGHTED:
            weights[relation] = rng.normal(size=number)
    return RandomCell(sizes, edges, weights)


@st.composite
def genotypes_of(draw: st.DrawFn, cell: RandomCell) -> list[list[int]]:
    """Return strains with zero to ten deletions: empty ones, repeated genes, a whole complex."""
    strains = draw(st.lists(st.lists(st.integers(0, cell.sizes["gene"] - 1), max_size=10), min_size=1, max_size=4))
    genes, reactions = cell.edges["gene", "catalyses", "reaction"]
    if len(reactions) and draw(st.booleans()):
        strains.append(sorted(set(genes[reactions == reactions[0]].tolist()))[:10])
    if draw(st.booleans()) and strains[0]:
        strains[0] = [*strains[0], strains[0][0]]  # the same gene twice
    return strains


@st.composite
def changes_of(draw: st.DrawFn, cell: RandomCell, strains: int) -> dict[tuple[str, str, str], list[Changes]]:
    """Return some removed, weakened and strengthened edges: relation → one dictionary per strain."""
    activity = st.sampled_from([0.0, 1.0, 0.02, 0.3, 7.0])
    chosen = {}
    for relation, (u, v) in cell.edges.items():
        pairs = sorted(set(zip(u.tolist(), v.tolist(), strict=True)))
        if pairs:
            one = st.dictionaries(st.sampled_from(pairs), activity, max_size=4)
            chosen[relation] = draw(st.lists(one, min_size=strains, max_size=strains))
    return chosen


SIZES = {"gene": 60, "reaction": 25, "metabolite": 20}
STRAINS = [[], [3], [0, 59], [7, 7, 8], list(range(20, 30))]


def make_cell() -> RandomCell:
    """Return the same cell every time, with self-loops, multi-edges, an empty relation and isolated nodes."""
    rng = np.random.default_rng(0)
    edges, weights = {}, {}
    for relation, (source, destination) in EDGES.items():
        number = 0 if relation[1] == "empty" else 90
        u, v = rng.integers(0, SIZES[source] - 2, number), rng.integers(0, SIZES[destination] - 2, number)
        if relation[1] == "physical":
            u[1], v[1] = u[0], v[0]
            v[2] = u[2]
        edges[relation] = u, v
        if relation[1] in WEIGHTED:
            weights[relation] = rng.normal(size=number)
    return RandomCell(SIZES, edges, weights)
