"""The one entry point to the strains' graphs: ``perturb(cell, genotypes, strategy)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import Relation
from dglcell.perturbation.difference import Difference
from dglcell.perturbation.edge_mask import EdgeMask
from dglcell.perturbation.edge_subgraph import EdgeSubgraph
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.knockout import keep_masks
from dglcell.perturbation.node_mask import NodeMask
from dglcell.perturbation.states import States

STRATEGIES = ("edge_subgraph", "edge_mask", "node_mask", "difference")

REDUCES = ("sum", "mean")


class PerturbedCell(Protocol):
    """The graphs of B strains, in whatever form a strategy keeps them."""

    @property
    def keep(self) -> dict[str, Tensor]:
        """node type → [N, B] bool."""

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> States:
        """Sum or mean over the surviving in-edges of every destination node, in every strain.

        An edge survives iff both its ends are kept; fixed edge weights multiply the messages; a mean divides by the
        number of surviving in-edges. A node without any, and a lost node, receive zero.

        Args:
            relation: which edges.
            states: of the source nodes.
            reduce: ``sum`` or ``mean``.
        """


def check_strategy(strategy: str) -> None:
    """Refuse an unknown strategy.

    Raises:
        ConfigError: naming those there are.
    """
    if strategy not in STRATEGIES:
        raise ConfigError("unknown strategy", got=strategy, expected=", ".join(STRATEGIES), do="set `model.strategy`")


def perturb(
    cell: ResidentCell, genotypes: GenotypeBatch, strategy: str = "node_mask", kernel: str = "auto"
) -> PerturbedCell:
    """The graph of every strain of a batch.

    Args:
        cell: the wild-type cell.
        genotypes: B strains on the same device.
        strategy: a key of ``STRATEGIES``.
        kernel: how ``node_mask`` and ``difference`` compute their products, see ``dglcell.kernels.spmm``.

    Raises:
        ConfigError: unknown strategy.
    """
    check_strategy(strategy)
    keep = keep_masks(cell, genotypes)
    makers: dict[str, Callable[[], PerturbedCell]] = {
        "edge_subgraph": lambda: EdgeSubgraph(cell, keep),
        "edge_mask": lambda: EdgeMask(cell, keep),
        "node_mask": lambda: NodeMask(cell, keep, kernel),
        "difference": lambda: Difference(cell, keep, kernel),
    }
    return makers[strategy]()
