"""The heterograph model: wild type against strain, over every strain's own graph."""

from __future__ import annotations

import dataclasses
from typing import cast

import torch
from torch import Tensor, nn

from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE, Relation
from dglcell.models.config import HeteroCellConfig
from dglcell.models.prediction import Prediction, StrainModel
from dglcell.nn.gatv2 import GATv2Conv
from dglcell.nn.gin import GINConv
from dglcell.nn.hetero_layer import HeteroLayer, live_relations
from dglcell.nn.hyper_sagnn import HyperSAGNN
from dglcell.nn.mlp import mlp
from dglcell.nn.pooling import AttentionPooling
from dglcell.nn.registry import make_activation, make_norm
from dglcell.nn.relation_mixer import RelationWeights
from dglcell.nn.sage import SAGEConv
from dglcell.perturbation.choices import Choices
from dglcell.perturbation.edge_perturbation import EdgePerturbations
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import PerturbedCell, perturb
from dglcell.perturbation.states import States

HEAD_GAIN = 0.01
"""Initial scale of the output layers' weights, relative to Kaiming's."""


class HeteroCell(StrainModel):
    r"""Predict phenotypes from the cell graph of every strain.

    1. Embeddings of all nodes, a preprocessor, then L rounds of message passing over the surviving edges of every
       strain; the wild type is strain 0 of the batch.
    2. Pool the kept nodes: :math:`z_w` of the wild type, :math:`z_i` of strain i; the perturbation is
       :math:`z_p = z_w - z_i`, and the global head is an MLP on it. Pooling takes a mean, which a few changed nodes
       move by about 1/N; with ``scale_difference`` :math:`z_p` is multiplied by N, so that it is of order one.
    3. The local head scores the deleted genes by their *wild-type* states (``HyperSAGNN``).
    4. The prediction is their mean, a gated sum, or the global head alone.

    After ``GeneInteractionDango`` of the torchcell project, with metabolism live in both directions and per-node
    norms.

    Args:
        cell: the cell graph; becomes part of the module, so it follows it to any device.
        config: validated.
        outputs: T, number of phenotypes.
        features: node type → [N, F] fixed input features, added through a Linear; optional.
    """

    config: HeteroCellConfig

    def __init__(
        self,
        cell: ResidentCell,
        config: HeteroCellConfig,
        outputs: int = 1,
        features: dict[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.cell, self.config = cell, config
        self.outputs = outputs
        self.choices: Choices | None = None
        relations = choose_relations(cell, config)
        self.plan = plan = live_relations(relations, config.layers, set(config.pool) | {GENE})
        read = set(config.pool) | {GENE} | {t for layer in plan for r in layer for t in (r[0], r[2])}
        self.node_types = [t for t in cell.num_nodes if t in read]
        width = config.hidden
        self.embeddings = nn.ModuleDict({t: nn.Embedding(cell.num_nodes[t], width) for t in self.node_types})
        self.features = nn.ParameterDict(
            {t: nn.Parameter(x, requires_grad=False) for t, x in (features or {}).items() if t in self.node_types}
        )
        self.project = nn.ModuleDict({t: nn.Linear(x.shape[1], width) for t, x in self.features.items()})
        self.preprocessors = nn.ModuleDict({t: preprocessor(config) for t in self.node_types})
        self.layers = nn.ModuleList(self._make_layer(live) for live in plan)
        self.pools = nn.ModuleDict({t: AttentionPooling(width, config.activation, config.dropout) for t in config.pool})
        self.global_head = mlp([width * len(config.pool), width, outputs], config.activation, config.dropout)
        self.local_head = self._make_local_head() if config.local_head else None
        self.gate = (
            mlp([2 * outputs, width, 2 * outputs], config.activation, config.dropout)
            if config.combination == "gated"
            else None
        )
        self.apply(initialise)
        self._start_at_the_mean()

    def _start_at_the_mean(self) -> None:
        """Shrink the last Linear of both heads: an untrained model predicts about the training mean, 0."""
        heads = [self.global_head[-1]] + ([self.local_head.score] if self.local_head is not None else [])
        with torch.no_grad():
            for head in heads:
                assert isinstance(head, nn.Linear)
                head.weight.mul_(HEAD_GAIN)

    def _make_layer(self, relations: list[Relation]) -> HeteroLayer:
        config = self.config

        def make_conv(relation: Relation) -> nn.Module:
            if config.conv == "sage":
                return SAGEConv(relation, config.hidden)
            if config.conv == "gatv2":
                weighted = self.cell[relation].weight is not None
                return GATv2Conv(relation, config.hidden, config.conv_heads, weighted=weighted)
            return GINConv(
                relation,
                config.hidden,
                hidden=config.gin_hidden or config.hidden,
                layers=config.gin_layers,
                activation=config.activation,
                dropout=config.dropout,
            )

        return HeteroLayer(
            relations,
            make_conv,
            width=config.hidden,
            cross_relation=config.combination_of_relations(),
            norm=config.norm,
            activation=config.activation,
            dropout=config.dropout,
            residual=config.residual,
            recompute=config.recompute,
        )

    def _make_local_head(self) -> HyperSAGNN:
        config = self.config
        return HyperSAGNN(
            config.hidden,
            self.outputs,
            layers=config.local_layers,
            heads=config.local_heads,
            gain=config.local_gain,
            activation=config.activation,
            dropout=config.dropout,
        )

    def choose(self, choices: Choices) -> None:
        """Let ``strategy: auto`` and ``kernel: auto`` follow ``choices``."""
        self.choices = choices
        choices.apply(self.cell)

    def encode(self, perturbed: PerturbedCell) -> dict[str, States]:
        """Node states of every strain after L rounds: node type → [N, B, H]."""
        states = {t: States.shared(self._inputs(t)) for t in self.node_types}
        for layer in self.layers:
            states = layer(perturbed, states)
        return states

    @torch.no_grad()
    def relation_weights(self) -> list[RelationWeights]:
        """How much of each relation every layer's learned combinations take, in the wild type.

        For each layer and node type with a learned combination: none for sums and means, and where but one relation
        ends in a node type.
        """
        training = self.training
        self.eval()
        wild_type = GenotypeBatch.from_lists([[]]).to(next(self.parameters()).device)
        perturbed = perturb(self.cell, wild_type, "node_mask", self.config.kernel)
        states = {t: States.shared(self._inputs(t)) for t in self.node_types}
        found = []
        for number, layer in enumerate(self.layers):
            found += cast(HeteroLayer, layer).relation_weights(perturbed, states, number)
            states = layer(perturbed, states)
        self.train(training)
        return found

    def _inputs(self, node_type: str) -> Tensor:
        embedding = self.embeddings[node_type]
        assert isinstance(embedding, nn.Embedding)
        x_NH: Tensor = embedding.weight
        if node_type in self.features:
            x_NH = x_NH + self.project[node_type](self.features[node_type])
        out: Tensor = self.preprocessors[node_type](x_NH)
        return out

    def forward(self, genotypes: GenotypeBatch, edges: EdgePerturbations | None = None) -> Prediction:
        """Predict the phenotypes of B strains, on the device of the model.

        No step of it synchronises with the host or loops over strains (but for the strategy ``edge_subgraph``,
        which does both).

        Args:
            genotypes: deleted genes.
            edges: changed edges of the same strains, for the strategies of ``EDGE_STRATEGIES``.
        """
        changed = None if edges is None else edges.with_wild_type()
        config = self.config
        choices = self.choices or Choices.default(genotypes.genes.device.type)
        if config.dropout and choices.strategy == "difference":
            choices = dataclasses.replace(choices, strategy="node_mask")
        perturbed = perturb(self.cell, genotypes.with_wild_type(), config.strategy, config.kernel, changed, choices)
        states = self.encode(perturbed)
        pooled = torch.cat([self._pool(t, states[t], perturbed.keep[t]) for t in self.config.pool], dim=-1)
        difference = pooled[:1] - pooled[1:]
        global_part: Tensor = self.global_head(difference)
        if self.local_head is None:
            return Prediction(global_part, difference, {"global": global_part})
        genes_BK, present_BK = genotypes.padded()
        local_part: Tensor = self.local_head(states[GENE].rows(genes_BK, strain=0), present_BK)
        phenotypes, gates = self._combine(global_part, local_part)
        return Prediction(phenotypes, difference, {"global": global_part, "local": local_part}, gates)

    def _pool(self, node_type: str, states: States, keep_NB: Tensor) -> Tensor:
        """[B, H] pooled states, times the number of nodes where so configured."""
        pooled: Tensor = self.pools[node_type](states, keep_NB)
        return pooled * self.cell.num_nodes[node_type] if self.config.scale_difference else pooled

    def _combine(self, global_part: Tensor, local_part: Tensor) -> tuple[Tensor, Tensor | None]:
        if self.gate is None:
            return 0.5 * (global_part + local_part), None
        logits = self.gate(torch.cat([global_part, local_part], dim=-1))
        gates_BT2 = torch.softmax(logits.view(-1, self.outputs, 2), dim=-1)
        return (gates_BT2 * torch.stack([global_part, local_part], dim=-1)).sum(-1), gates_BT2


def choose_relations(cell: ResidentCell, config: HeteroCellConfig) -> list[Relation]:
    """The relations of the cell graph that the configuration uses.

    Raises:
        ConfigError: `model.relations` names one that the cell graph lacks, or none is left.
    """
    names = [relation[1] for relation in cell.relations]
    unknown = sorted(set(config.relations or []) - set(names))
    if unknown:
        raise ConfigError(
            "`model.relations` names relations that the cell graph does not have",
            got=unknown,
            expected=", ".join(names),
        )
    missing = sorted(set(config.pool) - set(cell.num_nodes))
    if missing:
        raise ConfigError(
            "`model.pool` names node types that the cell graph does not have",
            got=missing,
            expected=", ".join(cell.num_nodes),
            do="set `cell.metabolism: true` or `model.pool: [gene]`",
        )
    chosen = [
        relation
        for relation in cell.relations
        if (config.relations is None or relation[1] in config.relations)
        and (config.metabolism or relation[0] == relation[2] == GENE)
    ]
    if not chosen and config.layers:
        raise ConfigError(
            "no relation is left for the model",
            got=names,
            do="add networks to the cell graph, or set `model.metabolism: true`",
        )
    return chosen


def preprocessor(config: HeteroCellConfig) -> nn.Sequential:
    """Linear layers between embeddings and message passing; one norm, after the last Linear."""
    modules: list[nn.Module] = []
    for i in range(config.preprocessor_layers):
        modules.append(nn.Linear(config.hidden, config.hidden))
        if i == config.preprocessor_layers - 1:
            modules.append(make_norm(config.norm, config.hidden))
        modules += [make_activation(config.activation), nn.Dropout(config.dropout)]
    return nn.Sequential(*modules)


def initialise(module: nn.Module) -> None:
    """Kaiming for Linear layers, zeros for their biases, N(0, 0.02²) for embeddings."""
    if isinstance(module, nn.Linear):
        nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
