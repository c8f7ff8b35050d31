"""Sum shares of reaction nodes up to the reactions of the metabolic model.

The cell graph has a node for each direction and each enzyme complex of a reaction, such as ``TKT1#1+`` and ``TKT1#2-``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.explanations.split import BALANCE, Split
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.metabolism import model_reaction, whole_reactions
from dglcell.graph.schema import REACTION

if TYPE_CHECKING:
    import pandas as pd


def of_whole_reactions(nodes: pd.DataFrame) -> pd.DataFrame:
    """Return a table of nodes or edges in which reactions are those of the metabolic model.

    Rows that are now the same are added up. Large shares come first in each layer.
    """
    named = nodes
    for node_type, node in (("node_type", "node"), ("source_type", "source"), ("target_type", "target")):
        if node in nodes:
            names = nodes[node].where(nodes[node_type] != REACTION, nodes[node].map(model_reaction))
            named = named.assign(**{node: names})
    keys = [name for name in named.columns if name != "share"]
    summed = named.groupby(keys, sort=False, as_index=False)["share"].sum()
    order = [name for name in ("strain", "phenotype", "layer") if name in keys]
    summed = summed.assign(size=-summed["share"].abs()).sort_values([*order, "size"], kind="stable", ignore_index=True)
    return summed.drop(columns="size")


@dataclass(frozen=True)
class Reactions:
    """Hold the reactions of the metabolic model, and how reaction nodes belong to them.

    Attributes:
        names: [R] their names.
        number_N: the reaction of each node.
        sign_N: −1 where a node carries it backwards.
    """

    names: tuple[str, ...]
    number_N: NDArray[np.int64]
    sign_N: NDArray[np.float64]

    @classmethod
    def of(cls, cell: CellGraph) -> Reactions:
        """Read the reactions of a cell graph; it may have none."""
        nodes = cell.vocabularies[REACTION].names if REACTION in cell.vocabularies else ()
        sign_N = np.array([-1.0 if node.endswith("-") else 1.0 for node in nodes])
        return cls(*whole_reactions(nodes), sign_N)

    def balance(self, split: Split) -> dict[str, NDArray[Any]]:
        """Return ``share``, ``wild_type`` and ``flux`` by reaction, [R, B], and what no reaction has, ``rest`` [B].

        It is empty where the part of flux balance is not split.
        """
        found = split.balance
        if found is None:
            return {}
        nodes = found.nodes.cpu().numpy()
        share_GB, flux_GB = found.share_GB.cpu().numpy(), found.flux_GB.cpu().numpy()
        sign_G1, wild_type_G1 = self.sign_N[nodes][:, None], found.wild_type_G.cpu().numpy()[:, None]

        def by_reaction(values_GB: NDArray[Any]) -> NDArray[np.float64]:
            total_RB = np.zeros((len(self.names), share_GB.shape[1]))
            np.add.at(total_RB, self.number_N[nodes], values_GB)
            return total_RB

        return {
            "share": by_reaction(share_GB),
            "wild_type": by_reaction(np.broadcast_to(sign_G1 * wild_type_G1, flux_GB.shape)),
            "flux": by_reaction(sign_G1 * flux_GB),
            "rest": split.parts[BALANCE].cpu().numpy() - share_GB.sum(0),
        }
