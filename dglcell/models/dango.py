"""Build DANGO: embeddings from reconstructed networks, and self-attention among the deleted genes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE, Relation
from dglcell.models.config import DangoConfig
from dglcell.models.model import OnDemand, Prediction, StrainModel
from dglcell.nn.dango import MetaEmbedding, NetworkEncoder, Reconstruction
from dglcell.nn.heads import HyperSAGNN, SetAttention
from dglcell.perturbation.genotype import GenotypeBatch

UNCERTAIN, CERTAIN = 0.1, 1.0
"""These are values of λ: the first is for networks of which many zeros became edges between two versions, so that zeros
are uncertain, and the second for all others."""

CHANNEL_ZERO_WEIGHTS = {
    "neighborhood": UNCERTAIN,
    "coexpression": UNCERTAIN,
    "experimental": UNCERTAIN,
    "fusion": CERTAIN,
    "cooccurence": CERTAIN,
    "database": CERTAIN,
}
"""This is λ by channel of STRING. It follows from the channel's growth between versions 9.1 and 11.0, as the torchcell
project found it among the genes of both. The code of DANGO's authors takes 1 for ``neighborhood``."""


def zero_weight(relation: str, given: Mapping[str, float]) -> float:
    """Return λ of one network.

    Args:
        relation: name of the network; see ``channel_of``.
        given: relation → λ from the configuration, which has precedence over the rule.

    Raises:
        ConfigError: nothing is given, and the name ends in no channel.
    """
    if relation in given:
        return given[relation]
    channel = channel_of(relation)
    if channel is not None:
        return CHANNEL_ZERO_WEIGHTS[channel]
    raise ConfigError(
        f"how much do the pairs that are no edges of '{relation}' count when it is reconstructed?",
        got=f"a name that ends in no channel of STRING ({', '.join(CHANNEL_ZERO_WEIGHTS)})",
        expected=f"{UNCERTAIN} for a network that still grows by much, {CERTAIN} for one that hardly does",
        do=f"set `model.zero_weights: {{{relation}: {CERTAIN}}}`, or leave the network out of `model.relations`",
    )


def channel_of(relation: str) -> str | None:
    """Return the channel of STRING that a network's name is, or ends in after an underscore; None for other names."""
    found = (c for c in CHANNEL_ZERO_WEIGHTS if relation == c or relation.endswith(f"_{c}"))
    return next(found, None)


class Dango(StrainModel):
    r"""Predict interactions of deleted genes from their states in the wild type.

    Zhang, Ma & Ma 2020, *DANGO: Predicting higher-order genetic interactions* (bioRxiv 2020.11.26.400739).

    1. Every gene has an embedding. For each of K networks, two rounds of GraphSAGE with ReLU give the genes' states
       :math:`E^{(k)}`, from which a Linear layer reconstructs the network's adjacency (``Reconstruction``).
    2. The states of a gene in the networks are joined to one (``MetaEmbedding``).
    3. The states of a strain's deleted genes are scored as a set (``HyperSAGNN``).

    Only the wild type is encoded, once per step whatever the batch: a deletion decides which genes' states are read,
    and changes no state. So this is not a model of the strains' graphs (``HeteroCell`` is).

    Networks are taken as the cell graph stores them, self-loops included; ``cell.symmetrise`` decides whether an
    undirected pair counts in both directions. Defaults are those of the torchcell project's experiment 006. The code
    that DANGO's authors released (github.com/ma-compbio/DANGO) differs from it, and both from the paper.

    While gradients are off in evaluation mode, gene states are computed once and kept until the weights change.

    Args:
        cell: the cell graph; becomes part of the module, so it follows it to any device.
        config: validated.
        outputs: T, number of phenotypes.
        features: ``gene`` → [N, F] fixed input features, added to the embeddings through a Linear; optional.

    Raises:
        ConfigError: a network is unknown or has no rule for its λ, or there is no network.
    """

    Config = DangoConfig
    config: DangoConfig

    def __init__(
        self,
        cell: ResidentCell,
        config: DangoConfig,
        outputs: int = 1,
        features: dict[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.cell, self.config = cell, config
        self.networks = choose_networks(cell, config)
        N, H = cell.num_nodes[GENE], config.hidden
        self.embedding = nn.Embedding(N, H)
        nn.init.normal_(self.embedding.weight, std=config.embedding_std)
        self.features = nn.ParameterDict({t: nn.Parameter(x, requires_grad=False) for t, x in (features or {}).items()})
        self.project = nn.ModuleDict({t: nn.Linear(x.shape[1], H) for t, x in self.features.items()})
        self.encoders = nn.ModuleList(NetworkEncoder(relation, H, config.activation) for relation in self.networks)
        self.heads = nn.ModuleList(
            Reconstruction(cell[relation], H, zero_weight(relation[1], config.zero_weights))
            for relation in (self.networks if config.reconstruction else [])
        )
        self.meta = MetaEmbedding(H, config.activation)
        self.score = HyperSAGNN(
            H,
            outputs,
            layers=2,
            heads=config.heads,
            gain=config.gain,
            activation=config.activation,
            dropout=config.dropout,
        )
        self.score.apply(initialise)
        self.see_conditions(width=H, strain_width=0, outputs=outputs, hidden=H, activation=config.activation)
        self.ignore_conditions_at_first()

    def encode(self) -> list[Tensor]:
        """Return the gene states in each network, [N, H]."""
        x_NH = self.embedding.weight
        if GENE in self.features:
            x_NH = x_NH + self.project[GENE](self.features[GENE])
        pairs = zip(self.encoders, self.networks, strict=True)
        return [encoder(self.cell[relation], x_NH, self.config.kernel) for encoder, relation in pairs]

    def reconstruct(self, states: list[Tensor] | None = None) -> Tensor:
        """Return the mean reconstruction error of the networks, a scalar.

        It is that of the given states, which are encoded anew where None.
        """
        pairs = zip(self.heads, states or self.encode(), strict=True)
        return torch.stack([head(x_NH) for head, x_NH in pairs]).mean()

    def forward(self, genotypes: GenotypeBatch) -> Prediction:
        """Predict the phenotypes of B strains, on the device of the model.

        No step of it synchronises with the host or loops over strains. The auxiliary ``reconstruction`` is computed
        when it is read.
        """
        if self.learned is not None:
            genotypes = self.learned(genotypes)
        kept_pass, states = self._base_cache.replay(self), None
        if kept_pass is None:
            states = self.encode()
            states_NH = self.meta(torch.stack(states, dim=1))
        else:
            states_NH = kept_pass.once(lambda: self.meta(torch.stack(self.encode(), dim=1)))
        genes_BK, removed_BK = genotypes.padded()
        x_BKH = states_NH[genes_BK]
        if self.readout is None:
            phenotypes_BT = self.score(x_BKH, removed_BK)
        else:
            phenotypes_BT = self.score(self.readout.genes(x_BKH, removed_BK, genotypes), removed_BK)
            phenotypes_BT = self.readout.score(phenotypes_BT, genotypes)
        auxiliary = {"reconstruction": partial(self.reconstruct, states)} if len(self.heads) else {}
        return Prediction(phenotypes_BT, auxiliary=OnDemand(auxiliary))


def choose_networks(cell: ResidentCell, config: DangoConfig) -> list[Relation]:
    """Return the gene–gene relations of the cell graph that the configuration uses.

    Raises:
        ConfigError: `model.relations` names another one, `model.zero_weights` one that is not used, or there is no
            network.
    """
    known = {relation[1]: relation for relation in cell.relations if relation[0] == relation[2] == GENE}
    if not known:
        raise ConfigError(
            "DANGO needs networks of genes", got="a cell graph without any", do="give `cell.networks` or `cell.derived`"
        )
    names = list(known) if config.relations is None else config.relations
    unknown = sorted(set(names) - set(known))
    if unknown or not names:
        raise ConfigError(
            "`model.relations` names no networks of genes that the cell graph has",
            got=unknown,
            expected=", ".join(known),
        )
    unused = sorted(set(config.zero_weights) - set(names))
    if unused:
        raise ConfigError(
            "`model.zero_weights` names networks that are not used", got=unused, expected="among " + ", ".join(names)
        )
    return [known[name] for name in names]


def initialise(module: nn.Module) -> None:
    """Initialise Linear layers by Xavier (gain of ReLU; queries, keys and values apart) and biases with zeros."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight, gain=math.sqrt(2))
        nn.init.zeros_(module.bias)
    elif isinstance(module, SetAttention):
        for weight in module.project.weight.chunk(3):
            nn.init.xavier_uniform_(weight, gain=math.sqrt(2))
