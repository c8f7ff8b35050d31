"""Encode the cell graph, for models that pass messages over it."""

from __future__ import annotations

from abc import abstractmethod
from typing import cast

import torch
from torch import Tensor, nn

from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE, REACTION, Relation
from dglcell.models.config import EncoderConfig, HeteroCellConfig
from dglcell.models.model import StrainModel
from dglcell.nn.blocks import EMBEDDING_STD, make_activation, make_norm
from dglcell.nn.cross_relation import RelationWeights
from dglcell.nn.heads import FactorisationMachine, HyperSAGNN, LocalHead
from dglcell.nn.hetero_layer import HeteroLayer, live_relations
from dglcell.nn.links import Link
from dglcell.perturbation.choose.autotuned import Autotuned
from dglcell.perturbation.execution import BasePass
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import PerturbedCell, perturb
from dglcell.perturbation.states import States


class CellEncoder(nn.Module):
    """Embed all nodes, apply a preprocessor, then L rounds of message passing over surviving edges.

    Args:
        cell: the cell graph; becomes part of the module, so it follows it to any device.
        config: validated.
        read: node types whose final states the model reads.
        features: node type → [N, F] fixed input features, added through a Linear; optional.

    Attributes:
        plan: the relations that each layer computes, first layer first.
        node_types: node types that the states of ``read`` depend on.

    Raises:
        ConfigError: the configuration names relations or node types that the cell graph lacks.
    """

    def __init__(
        self,
        cell: ResidentCell,
        config: EncoderConfig,
        read: list[str],
        features: dict[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.cell, self.config = cell, config
        self.plan = plan = live_relations(choose_relations(cell, config), config.layers, set(read))
        known = set(read) | {t for layer in plan for r in layer for t in (r[0], r[2])}
        self.node_types = [t for t in cell.num_nodes if t in known]
        width = config.hidden
        self.embeddings = nn.ModuleDict({t: nn.Embedding(cell.num_nodes[t], width) for t in self.node_types})
        self.features = nn.ParameterDict(
            {t: nn.Parameter(x, requires_grad=False) for t, x in (features or {}).items() if t in self.node_types}
        )
        self.project = nn.ModuleDict({t: nn.Linear(x.shape[1], width) for t, x in self.features.items()})
        self.preprocessors = nn.ModuleDict({t: preprocessor(config) for t in self.node_types})
        kind, options = config.convolution()
        self.layers = nn.ModuleList(
            HeteroLayer(
                live,
                lambda relation: kind.of(relation, width, options, cell),
                width=width,
                cross_relation=config.combination_of_relations(),
                norm=config.norm,
                activation=config.activation,
                dropout=config.dropout,
                residual=config.residual,
            )
            for live in plan
        )

    def freeze_all_but(self, read: list[str]) -> None:
        """Take the gradient from parameters that the last states of these node types do not depend on.

        Several processes wait for the gradient of every parameter that requires one.
        """
        needed = live_relations(choose_relations(self.cell, self.config), self.config.layers, set(read))
        for layer, relations in zip(self.layers, needed, strict=True):
            cast(HeteroLayer, layer).freeze_all_but(relations)
        known = set(read) | {t for layer in needed for r in layer for t in (r[0], r[2])}
        for modules in (self.embeddings, self.project, self.preprocessors):
            for node_type, module in modules.items():
                if node_type not in known:
                    module.requires_grad_(False)

    @property
    def rows_per_strain(self) -> int:
        """Return the number of rows that a strain has in all relations of all layers."""
        return sum(self.cell[relation].num_dst for layer in self.plan for relation in layer)

    def spread_embeddings(self) -> None:
        """Scale freshly initialised embeddings to the standard deviation of the configuration."""
        with torch.no_grad():
            for embedding in self.embeddings.children():
                assert isinstance(embedding, nn.Embedding)
                embedding.weight.mul_(self.config.embedding_std / EMBEDDING_STD)

    def forward(self, perturbed: PerturbedCell, kept_pass: BasePass | None = None) -> dict[str, States]:
        """Return the node states of every strain after L rounds: node type → [N, B, H].

        Args:
            perturbed: the strains' graphs.
            kept_pass: results for the base that earlier batches computed with the same weights; optional.
        """

        def inputs(node_type: str) -> Tensor:
            return self.inputs(node_type) if kept_pass is None else kept_pass.once(lambda: self.inputs(node_type))

        states = {t: perturbed.start(inputs(t)) for t in self.node_types}
        for layer in self.layers:
            states = layer(perturbed, states)
        return states

    @torch.no_grad()
    def relation_weights(self) -> list[RelationWeights]:
        """Return how much of each relation every layer's learned combinations take, in the wild type.

        There is one entry for each layer and node type with a learned combination: none for sums and means, and none
        where only one relation ends in a node type.
        """
        training = self.training
        self.eval()
        wild_type = GenotypeBatch.from_lists([[]]).to(next(self.parameters()).device)
        perturbed = perturb(self.cell, wild_type, "node_mask", self.config.kernel)
        states = {t: perturbed.start(self.inputs(t)) for t in self.node_types}
        found = []
        for number, layer in enumerate(self.layers):
            found += cast(HeteroLayer, layer).relation_weights(perturbed, states, number)
            states = layer(perturbed, states)
        self.train(training)
        return found

    def inputs(self, node_type: str) -> Tensor:
        """Return the states that the first round starts from, [N, H]."""
        embedding = self.embeddings[node_type]
        assert isinstance(embedding, nn.Embedding)
        x_NH: Tensor = embedding.weight
        if node_type in self.features:
            x_NH = x_NH + self.project[node_type](self.features[node_type])
        out: Tensor = self.preprocessors[node_type](x_NH)
        return out


class PerturbedModel(StrainModel):
    """Compute on the strains' own graphs, so that strategies and kernels can be chosen by measuring.

    Attributes:
        encoder: passes messages over the strains' graphs.
        autotuned: the choices for ``auto``; the device's defaults where None.
    """

    Config = HeteroCellConfig
    config: HeteroCellConfig
    encoder: CellEncoder
    autotuned: Autotuned | None = None

    @abstractmethod
    def choose(self, autotuned: Autotuned) -> None:
        """Let ``strategy: auto`` and ``kernel: auto`` follow ``autotuned``."""


def choose_relations(cell: ResidentCell, config: EncoderConfig) -> list[Relation]:
    """Return the relations of the cell graph that the configuration uses.

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


def preprocessor(config: EncoderConfig) -> nn.Sequential:
    """Make the Linear layers between embeddings and message passing, with one norm after the last of them."""
    modules: list[nn.Module] = []
    for i in range(config.preprocessor_layers):
        modules.append(nn.Linear(config.hidden, config.hidden))
        if i == config.preprocessor_layers - 1:
            modules.append(make_norm(config.norm, config.hidden))
        modules += [make_activation(config.activation), nn.Dropout(config.dropout)]
    return nn.Sequential(*modules)


def make_link(cell: ResidentCell, config: EncoderConfig, outputs: int) -> Link | None:
    """Make the link from a model's scores to phenotypes; None where scores are phenotypes."""
    if config.link == "identity":
        return None
    node_type = REACTION if config.metabolism and REACTION in cell.num_nodes else GENE
    return Link(outputs, config.link, node_type)


def make_local_head(config: EncoderConfig, outputs: int, genes: int) -> LocalHead:
    """Make the head on the deleted genes that a configuration asks for.

    Args:
        config: validated.
        outputs: number T of phenotypes.
        genes: number of genes of the cell graph.
    """
    attention, factorisation = None, None
    if config.local_kind != "factorisation":
        attention = HyperSAGNN(
            config.hidden,
            outputs,
            layers=config.local_layers,
            heads=config.local_heads,
            gain=config.local_gain,
            activation=config.activation,
            dropout=config.dropout,
        )
    if config.local_kind != "hyper_sagnn":
        factorisation = FactorisationMachine(
            config.hidden,
            outputs,
            factors=config.local_factors,
            dropout=config.dropout,
            genes=genes if config.local_deviations else None,
        )
    return LocalHead(attention, factorisation)
