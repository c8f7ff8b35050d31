"""Build the heterograph model, which compares the wild type with every strain's own graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE
from dglcell.models.config import HeteroCellConfig
from dglcell.models.encoder import CellEncoder, PerturbedModel, make_link, make_local_head
from dglcell.models.model import Prediction
from dglcell.nn.blocks import initialise, mlp, start_at_the_mean
from dglcell.nn.heads import Combination
from dglcell.nn.pooling import AttentionPooling
from dglcell.perturbation.choices import Choices
from dglcell.perturbation.execution import BasePass
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import perturb
from dglcell.perturbation.sent import Kept
from dglcell.perturbation.states import Pooled, States


@dataclass(frozen=True)
class _Encoded:
    """Hold what the heads read of B encoded strains.

    Attributes:
        difference_BD: the pooled states of the strains less those of the base.
        genes_NH: states of the base's genes.
    """

    difference_BD: Tensor
    genes_NH: Tensor


class HeteroCell(PerturbedModel):
    r"""Predict phenotypes from the cell graph of every strain.

    1. Embeddings of all nodes, a preprocessor, then L rounds of message passing over the surviving edges of every
       strain: the wild type once, and by how much every strain differs from it.
    2. Pool the kept nodes: :math:`z_w` of the wild type, :math:`z_i` of strain i; the perturbation is
       :math:`z_p = z_w - z_i`, and the global head is an MLP on it. Pooling takes a mean, which a few changed nodes
       move by about 1/N; :math:`z_p` is multiplied by N, so that it is of order one.
    3. The local head scores the deleted genes by their *wild-type* states (``LocalHead``).
    4. Both are combined to a score: their sum, their mean, or the global head alone.
    5. ``link`` makes a phenotype of the score (``Link``).
    6. Heads see the conditions of strains and how much is left of their genes (``ConditionedReadout``). A growth medium
       weakens reactions in the graphs of its strains, the condition `edges` changes their edges, and strengths may be
       learned (``LearnedStrengths``).

    The model follows ``GeneInteractionDango`` of the torchcell project; here metabolism is used in both directions and
    norms are per node.

    While gradients are off in evaluation mode, the strategy ``difference`` computes the wild type's rows of every layer
    once, and keeps them until the weights change. Of batches with ``shared`` deletions it also keeps the rows of the
    strain that has these only, until a batch comes with others.

    Args:
        cell: the cell graph; becomes part of the module, so it follows it to any device.
        config: validated.
        outputs: T, number of phenotypes.
        features: node type → [N, F] fixed input features, added through a Linear; optional.
    """

    changes_edges = True

    def __init__(
        self,
        cell: ResidentCell,
        config: HeteroCellConfig,
        outputs: int = 1,
        features: dict[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        _check_pools(cell, config)
        self.cell, self.config = cell, config
        width = config.hidden
        self.encoder = CellEncoder(cell, config, [*config.pool, GENE], features)
        self.pools = nn.ModuleDict({t: AttentionPooling(width, config.activation, config.dropout) for t in config.pool})
        self.global_head = mlp([self._readout_width, width, outputs], config.activation, config.dropout)
        self.local_head = make_local_head(config, outputs, cell.num_nodes[GENE]) if config.local_head else None
        self.combination = Combination(config.combination)
        self.link = make_link(cell, config, outputs)
        self.see_conditions(
            width=width if config.local_head else 0,
            strain_width=self._readout_width,
            outputs=outputs,
            hidden=width,
            activation=config.activation,
        )
        if not config.local_head:
            self.encoder.freeze_all_but(config.pool)
        self.apply(initialise)
        self.encoder.spread_embeddings()
        self.ignore_conditions_at_first()
        start_at_the_mean(self.global_head[-1])
        if self.local_head is not None:
            self.local_head.start_at_the_mean()

    def forward(self, genotypes: GenotypeBatch) -> Prediction:
        """Predict the phenotypes of B strains, on the device of the model.

        No step of it synchronises with the host or loops over strains, but for the strategy ``edge_subgraph``, which
        does both, and for strains that change edges, which synchronise.

        Args:
            genotypes: the strains.
        """
        if not genotypes.num_strains:
            return self.of_no_strains(genotypes)
        if self.learned is not None:
            genotypes = self.learned(genotypes)
        genotypes = self.in_conditions(genotypes)
        kept_pass = self._base_cache.replay(self)
        if genotypes.shared and kept_pass is not None and genotypes.edges is None and self.shares_deletions:
            encoded = self._from_shared(genotypes, kept_pass)
        else:
            encoded = self._encode(replace(genotypes, shared=()), kept_pass)
        embedding = -encoded.difference_BD  # z_w − z_i
        seen = embedding if self.readout is None else self.readout.strain(embedding, genotypes)
        parts: dict[str, Tensor] = {"global": self.global_head(seen)}
        score = parts["global"]
        if self.local_head is not None:
            genes_BK, removed_BK = genotypes.padded()
            x_BKH = F.embedding(genes_BK, encoded.genes_NH)
            x_BKH = x_BKH if self.readout is None else self.readout.genes(x_BKH, removed_BK, genotypes)
            parts["local"] = self.local_head(x_BKH, genes_BK, removed_BK)
            score = self.combination(*parts.values())
        if self.link is not None:
            score = self.link.compare(score, self._wild_type_score(score), self.cell, genotypes)
        return Prediction(score, embedding, parts)

    @property
    def _readout_width(self) -> int:
        """Return how many numbers of a strain the global head sees."""
        return self.config.hidden * len(self.config.pool)

    def _wild_type_score(self, like_BT: Tensor) -> Tensor:
        """Return the score of the strain without deletions, [1, T]."""
        score_1T: Tensor = self.global_head(like_BT.new_zeros(1, self._readout_width))
        if self.local_head is not None:
            score_1T = self.combination(score_1T, torch.zeros_like(score_1T))
        return score_1T

    @property
    def shares_deletions(self) -> bool:
        if self.learned is not None:  # What is shared need not be deleted then.
            return False
        strategy = self.config.strategy
        return (self._choices().strategy if strategy == "auto" else strategy) == "difference"

    def _choices(self) -> Choices:
        return self.choices_on(next(self.parameters()).device.type)

    def _encode(
        self,
        genotypes: GenotypeBatch,
        kept_pass: BasePass | None,
        strategy: str | None = None,
    ) -> _Encoded:
        """Return by how much strains differ from the base.

        Args:
            genotypes: the strains.
            kept_pass: results for the base that were already computed.
            strategy: the configured one where None.
        """
        config, choices = self.config, self._choices()
        execution = choices.execution(recompute=self.recomputes(genotypes.num_strains, choices))
        strategy = strategy or config.strategy
        perturbed = perturb(self.cell, genotypes, strategy, config.kernel, choices, execution, kept_pass)
        states = self.encoder(perturbed, kept_pass)
        pooled = [self._pool(t, states[t], perturbed.kept[t]) for t in config.pool]
        difference_BD = torch.cat([difference for _, difference in pooled], dim=-1)
        return _Encoded(difference_BD, states[GENE].base_NH)

    def _from_shared(self, genotypes: GenotypeBatch, kept_pass: BasePass) -> _Encoded:
        """Return the same for strains with deletions in common, with the wild type's gene states.

        First it computes by how much the strain with only these deletions differs from the wild type, which consecutive
        batches have in common. Then it computes by how much the others differ from that strain: in the first round only
        rows in which a strain differs from *it* are computed, and in later ones as long as these are few.
        """
        of_shared = self._base_cache.replay(self, genotypes.shared)
        assert of_shared is not None
        first = of_shared.once(lambda: self._encode(genotypes.of_shared(), kept_pass))
        rest = self._encode(genotypes, of_shared, "difference")
        return _Encoded(first.difference_BD + rest.difference_BD, first.genes_NH)

    def _pool(self, node_type: str, states: States, kept: Kept) -> Pooled:
        """Pool states, multiplied by the number of nodes."""
        pooled: Pooled = self.pools[node_type](states, kept)
        scale = self.cell.num_nodes[node_type]
        return Pooled(pooled.base_1H * scale, pooled.difference_BH * scale)


def _check_pools(cell: ResidentCell, config: HeteroCellConfig) -> None:
    missing = sorted(set(config.pool) - set(cell.num_nodes))
    if missing:
        raise ConfigError(
            "`model.pool` names node types that the cell graph does not have",
            got=missing,
            expected=", ".join(cell.num_nodes),
            do="set `cell.metabolism: true` or `model.pool: [gene]`",
        )
