"""Encode the cell graph, for models that pass messages over it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE, Relation
from dglcell.models.config import EncoderConfig
from dglcell.nn.blocks import make_activation, make_norm
from dglcell.nn.config import PAIRWISE
from dglcell.nn.hetero_layer import HeteroLayer, live_relations
from dglcell.perturbation.execution import BasePass
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.states import States

KEPT, KEPT_COMPILED, KEPT_CHAINED, KEPT_OF_PAIRS = 9, 7, 2, 2
"""Numbers that a step keeps for the backward pass, for each number of a relation's rows: in plain torch, in compiled
layers, and in layers of one kernel; and for each number of each layer of the MLPs of pairs of relations."""


class CellEncoder(nn.Module):
    """Embed all nodes, apply a preprocessor, then L rounds of message passing over surviving edges.

    The model reads the last states of the node types ``read``, which depend on those of ``node_types``. ``plan`` has
    the relations of each layer, first layer first. Fixed ``features`` [N, F] are added through a Linear.
    """

    embeddings: Any
    layers: Any

    def __init__(
        self, cell: ResidentCell, config: EncoderConfig, read: list[str], features: dict[str, Tensor] | None = None
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
        """Take the gradient from parameters that states of ``read`` do not depend on.

        Several processes would wait for their gradients.
        """
        needed = live_relations(choose_relations(self.cell, self.config), self.config.layers, set(read))
        for layer, relations in zip(self.layers, needed, strict=True):
            layer.freeze_all_but(relations)
        known = set(read) | {t for layer in needed for r in layer for t in (r[0], r[2])}
        for modules in (self.embeddings, self.project, self.preprocessors):
            for node_type, module in modules.items():
                if node_type not in known:
                    module.requires_grad_(False)

    @property
    def rows_per_strain(self) -> int:
        """Return the number of rows that a strain has in all relations of all layers."""
        return sum(self.cell[relation].num_dst for layer in self.plan for relation in layer)

    def kept_of_strain(self, compiled: bool, dtype: torch.dtype) -> int:
        """Return about how many numbers a step keeps for the backward pass of a strain whose rows all differ.

        ``dtype`` is that of differences.
        """
        combination, width = self.config.combination_of_relations(), self.config.hidden
        ends = [Counter(relation[2] for relation in layer) for layer in self.plan if combination.how == PAIRWISE]
        mixed = [(t, number) for layer in ends for t, number in layer.items() if number > 1]
        pairs = sum(self.cell.num_nodes[t] * number * (number + 1) // 2 for t, number in mixed)
        one_kernel = self.chained(dtype, next(self.parameters()).device)
        kept = KEPT_CHAINED if one_kernel else KEPT_COMPILED if compiled else KEPT
        of_pair = combination.hidden or width // 2
        # Kernels write hidden rows of one layer at a time, and keep two numbers of a pair.
        of_pair = of_pair // len(self.plan) + 2 if one_kernel else of_pair * combination.layers * KEPT_OF_PAIRS
        return self.rows_per_strain * width * kept + pairs * of_pair

    def chained(self, dtype: torch.dtype, device: torch.device) -> bool:
        """Return whether kernels compute the rows of all layers (``kernels.row_chain`` and ``pair_mix``)."""
        known = len(self.layers) > 0 and next(self.parameters()).dtype == torch.float32
        return known and all(layer.chained(dtype, device) for layer in self.layers)

    def forward(self, perturbed: PerturbedCell, kept_pass: BasePass | None = None) -> dict[str, States]:
        """Return the node states of every strain after L rounds: node type → [N, B, H]."""

        def inputs(node_type: str) -> Tensor:
            return self.inputs(node_type) if kept_pass is None else kept_pass.once(lambda: self.inputs(node_type))

        states = {t: perturbed.start(inputs(t)) for t in self.node_types}
        for layer in self.layers:
            states = layer(perturbed, states)
        return states

    def inputs(self, node_type: str) -> Tensor:
        """Return the states that the first round starts from, [N, H]."""
        x_NH: Tensor = self.embeddings[node_type].weight
        if node_type in self.features:
            x_NH = x_NH + self.project[node_type](self.features[node_type])
        out: Tensor = self.preprocessors[node_type](x_NH)
        return out


def choose_relations(cell: ResidentCell, config: EncoderConfig) -> list[Relation]:
    """Return the relations of the cell graph that the configuration uses."""
    names = [relation[1] for relation in cell.relations]
    unknown = sorted(set(config.relations or []) - set(names))
    if unknown:
        what = "`model.relations` names relations that the cell graph does not have"
        raise ConfigError(what, got=unknown, expected=", ".join(names))
    chosen = [
        relation
        for relation in cell.relations
        if (config.relations is None or relation[1] in config.relations)
        and (config.metabolism or relation[0] == relation[2] == GENE)
    ]
    if not chosen and config.layers:
        do = "add networks to the cell graph, or set `model.metabolism: true`"
        raise ConfigError("no relation is left for the model", got=names, do=do)
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
