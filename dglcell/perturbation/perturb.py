"""The one entry point to the strains' graphs: ``perturb(cell, genotypes, strategy)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from dglcell.errors import ConfigError, GenotypeError, MissingDependencyError
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import Relation
from dglcell.kernels.attention import GATv2Score
from dglcell.kernels.spmm import dgl_runs_on
from dglcell.perturbation.choices import Choices
from dglcell.perturbation.difference import Difference
from dglcell.perturbation.edge_mask import EdgeMask
from dglcell.perturbation.edge_perturbation import EdgePerturbations
from dglcell.perturbation.edge_subgraph import EdgeSubgraph
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.knockout import keep_masks
from dglcell.perturbation.node_mask import NodeMask
from dglcell.perturbation.states import States

STRATEGIES = ("edge_subgraph", "edge_mask", "node_mask", "difference")
"""Ways to express the strains' graphs; ``auto`` takes one of them."""

EDGE_STRATEGIES = ("edge_mask", "edge_subgraph")
"""Those that can express perturbations of single edges."""

DGL_STRATEGIES = ("edge_subgraph", "edge_mask")
"""Those that leave products to DGL, whose build must support the device."""

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

    def attend(self, relation: Relation, keys: States, queries: States, score: GATv2Score) -> States:
        """GATv2 attention of every destination node to its surviving in-edges, in every strain.

        The softmax is over the surviving edges only; a node without any, and a lost node, receive zero. For the
        maths see ``dglcell.kernels.attention.gatv2``.

        Args:
            relation: which edges.
            keys: of the source nodes, H wide; also what is averaged.
            queries: of the destination nodes, H wide.
            score: of a pair, with heads side by side in H.
        """


def check_strategy(strategy: str) -> None:
    """Refuse an unknown strategy.

    Raises:
        ConfigError: naming those there are.
    """
    if strategy not in ("auto", *STRATEGIES):
        expected = ", ".join(("auto", *STRATEGIES))
        raise ConfigError("unknown strategy", got=strategy, expected=expected, do="set `model.strategy`")


def check_strategy_device(strategy: str, device_type: str) -> None:
    """Refuse a strategy that this DGL build cannot compute on a device.

    Raises:
        MissingDependencyError: naming those that it can.
    """
    if strategy in DGL_STRATEGIES and not dgl_runs_on(device_type):
        raise MissingDependencyError(
            f"strategy '{strategy}' asked for, but DGL was built without {device_type} support",
            expected=", ".join(s for s in STRATEGIES if s not in DGL_STRATEGIES),
            do="install DGL's CUDA wheel (https://www.dgl.ai/pages/start.html), or set `model.strategy: node_mask`",
        )


def perturb(
    cell: ResidentCell,
    genotypes: GenotypeBatch,
    strategy: str = "node_mask",
    kernel: str = "auto",
    edges: EdgePerturbations | None = None,
    choices: Choices | None = None,
) -> PerturbedCell:
    """The graph of every strain of a batch.

    Args:
        cell: the wild-type cell.
        genotypes: B strains on the same device. ``difference`` takes the strain of their ``shared`` genes as its base.
        strategy: one of ``STRATEGIES``, or ``auto``.
        kernel: how ``node_mask`` and ``difference``, and ``edge_mask`` with ``edges``, compute their products, see
            ``dglcell.kernels.spmm``.
        edges: changed edges of the same strains; optional.
        choices: what ``auto`` takes; the device's defaults where None. With ``edges`` it takes ``edge_mask``.

    Raises:
        ConfigError: unknown strategy, or one that cannot express changed edges.
        MissingDependencyError: this DGL build lacks the device, and the strategy needs it.
        GenotypeError: ``edges`` are of another number of strains.
    """
    check_strategy(strategy)
    choices = choices or Choices.default(genotypes.genes.device.type)
    if strategy == "auto":
        strategy = choices.strategy if edges is None else "edge_mask"
    check_strategy_device(strategy, genotypes.genes.device.type)
    if edges is not None:
        _check_edges(edges, genotypes, strategy)
    keep = keep_masks(cell, genotypes)
    base = keep_masks(cell, genotypes.of_shared()) if genotypes.shared and strategy == "difference" else None
    makers: dict[str, Callable[[], PerturbedCell]] = {
        "edge_subgraph": lambda: EdgeSubgraph(cell, keep, edges),
        "edge_mask": lambda: EdgeMask(cell, keep, kernel, edges),
        "node_mask": lambda: NodeMask(cell, keep, kernel),
        "difference": lambda: Difference(cell, keep, kernel, choices.dense_share, base),
    }
    return makers[strategy]()


def _check_edges(edges: EdgePerturbations, genotypes: GenotypeBatch, strategy: str) -> None:
    if strategy not in EDGE_STRATEGIES:
        raise ConfigError(
            f"strategy '{strategy}' cannot express perturbations of single edges",
            got=f"changed edges in {len(edges.relations)} relations",
            expected=", ".join(EDGE_STRATEGIES),
            do="set `model.strategy: edge_mask`",
        )
    if edges.num_strains != genotypes.num_strains:
        raise GenotypeError(
            "edge perturbations and genotypes are of different numbers of strains",
            got=f"{edges.num_strains} and {genotypes.num_strains}",
            do="build `EdgePerturbations` with `num_strains=genotypes.num_strains`",
        )
