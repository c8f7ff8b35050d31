"""Score the changed genes of strains, as a set, by their states in the wild type."""

from __future__ import annotations

from torch import Tensor

from dglcell.graph.schema import GENE
from dglcell.models.terms.config import GenesConfig
from dglcell.models.terms.term import Seen, Surroundings, Term
from dglcell.nn.config import check_heads
from dglcell.nn.heads import FactorisationMachine, HyperSAGNN, LocalHead


class Genes(Term):
    """Score the changed genes by self-attention among them, by products of their vectors, or both (``LocalHead``)."""

    Config = GenesConfig
    sees_genes = True

    def __init__(self, config: GenesConfig, surroundings: Surroundings) -> None:
        super().__init__(config, surroundings)
        hidden, outputs, dropout = surroundings.hidden, surroundings.outputs, surroundings.dropout
        attention, factorisation = None, None
        if config.local_kind != "factorisation":
            check_heads(hidden, config.local_heads, key="model.local_heads")
            attention = HyperSAGNN(
                hidden,
                outputs,
                layers=config.local_layers,
                heads=config.local_heads,
                gain=config.local_gain,
                activation=surroundings.activation,
                dropout=dropout,
            )
        if config.local_kind != "hyper_sagnn":
            genes = surroundings.cell.num_nodes[GENE] if config.local_deviations else None
            factorisation = FactorisationMachine(
                hidden, outputs, factors=config.local_factors, dropout=dropout, genes=genes
            )
        self.head = LocalHead(attention, factorisation)

    def start(self) -> None:
        self.head.start_at_the_mean()

    def forward(self, seen: Seen) -> Tensor:
        score_BT: Tensor = self.head(seen.x_BKH, seen.genes_BK, seen.removed_BK)
        return score_BT
