"""Encode the cell graph, for models that pass messages over it."""

from __future__ import annotations

import logging
from collections import Counter
from typing import cast

import torch
from torch import Tensor, nn

from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE, REACTION, Relation
from dglcell.kernels import row_chain
from dglcell.kernels.spmm import default_kernel
from dglcell.machine.devices import free_memory
from dglcell.models.config import EncoderConfig, HeteroCellConfig
from dglcell.models.model import StrainModel
from dglcell.nn.blocks import EMBEDDING_STD, make_activation, make_norm
from dglcell.nn.heads import FactorisationMachine, HyperSAGNN, LocalHead
from dglcell.nn.hetero_layer import HeteroLayer, live_relations
from dglcell.nn.links import Link
from dglcell.perturbation import DGL_STRATEGIES
from dglcell.perturbation.choices import Choices
from dglcell.perturbation.execution import BasePass
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.states import States

log = logging.getLogger("dglcell")

KEPT, KEPT_COMPILED, KEPT_CHAINED, KEPT_OF_PAIRS = 9, 7, 2, 2
"""For each number of a relation's rows a step keeps so many for the backward pass: in plain torch, in compiled layers,
and in layers of one kernel; and so many for each number of each layer of the MLPs of pairs of relations. On an H100 a
step with 28 strains of yeast's size took 10.2 GB in plain float32, 4.3 GB compiled with bfloat16 differences, and 1.5
GB in one kernel."""

ROW_TENSORS = 3
"""An evaluation has about so many tensors of the rows of a layer at once."""

SHARE_OF_MEMORY = 0.7
"""Layers may keep this part of the memory that is free at a first step; optimiser and gradients need some, too."""


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

    def kept_of_strain(self, compiled: bool) -> int:
        """Return about how many numbers of a strain a step keeps for the backward pass, where all rows differ.

        Args:
            compiled: whether layers are compiled.
        """
        combination, width = self.config.combination_of_relations(), self.config.hidden
        pairs = 0
        if combination.how == "pairwise_interaction":
            for layer in self.plan:
                for node_type, number in Counter(relation[2] for relation in layer).items():
                    pairs += self.cell.num_nodes[node_type] * number * (number + 1) // 2 if number > 1 else 0
        of_pairs = pairs * (combination.hidden or width // 2) * combination.layers
        one_kernel = self.chained and row_chain.runs_on(next(self.parameters()).device)
        kept = KEPT_CHAINED if one_kernel else KEPT_COMPILED if compiled else KEPT
        return self.rows_per_strain * width * kept + of_pairs * KEPT_OF_PAIRS

    @property
    def chained(self) -> bool:
        """Return whether the modules of all layers are a chain that one kernel computes (``kernels.row_chain``)."""
        return all(cast(HeteroLayer, layer).chained for layer in self.layers)

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
    """Compute on the strains' own graphs, by a strategy and a kernel.

    Attributes:
        encoder: passes messages over the strains' graphs.
        choices: what ``auto`` stands for; the device's defaults where None.
    """

    Config = HeteroCellConfig
    config: HeteroCellConfig
    encoder: CellEncoder
    choices: Choices | None = None

    def __init__(self) -> None:
        super().__init__()
        self._recomputing: dict[tuple[int, Choices], bool] = {}

    def choose(self, choices: Choices) -> None:
        """Let ``strategy: auto``, ``kernel: auto`` and the form of layers follow ``choices``."""
        self.choices = choices
        self._base_cache.forget()

    def choices_on(self, device_type: str) -> Choices:
        """Return the choices made, or the defaults of a device."""
        return self.choices or Choices.default(device_type, of_edges=self.config.strategy_of_edges())

    def recomputes(self, num_strains: int, choices: Choices) -> bool:
        """Return whether the backward pass computes layers once more instead of keeping their intermediate results.

        It does where these would not fit into the memory that the device has free at the first step of a size.
        """
        if self.config.recompute != "auto":
            return self.config.recompute == "true"
        known = num_strains, choices
        if known not in self._recomputing:
            weight = next(self.parameters())
            size = torch.bfloat16.itemsize if choices.half else weight.dtype.itemsize
            needed = self.encoder.kept_of_strain(choices.compiled) * num_strains * size
            room = free_memory(weight.device)
            self._recomputing[known] = room is not None and needed > SHARE_OF_MEMORY * room
            if self._recomputing[known]:
                log.info("the backward pass computes layers once more: they would keep %.1f GiB", needed / 2**30)
        return self._recomputing[known]

    def fitting_batch(self, most: int) -> int:
        """See ``StrainModel.fitting_batch``; what fits is a power of two, by the rows of all relations of a layer."""
        weight = next(self.parameters())
        room = free_memory(weight.device)
        nodes = sum(self.cell.num_nodes[node_type] for node_type in self.encoder.node_types)
        rows = nodes + max((sum(self.cell.num_nodes[r[2]] for r in layer) for layer in self.encoder.plan), default=0)
        of_strain = ROW_TENSORS * rows * self.config.hidden * weight.dtype.itemsize
        if room is None or most * of_strain <= SHARE_OF_MEMORY * room:
            return most
        return 1 << (max(1, int(SHARE_OF_MEMORY * room / of_strain)).bit_length() - 1)

    def choose_for_run(self, device_type: str, strains: float, precision: str = "auto") -> None:
        """Choose for a run by the table of defaults, and log each choice with its reason.

        Args:
            device_type: ``cpu`` or ``cuda``.
            strains: number of strains that the run computes, each as often as it is computed.
            precision: value of ``trainer.precision``.
        """
        config, rows = self.config, self.encoder.rows_per_strain * strains
        default = Choices.default(device_type, of_edges=config.strategy_of_edges())
        one_kernel = row_chain.runs_on(torch.device(device_type)) and self.encoder.chained
        self.choose(
            default.for_run(device_type, rows, precision=precision, compiled=config.compile, one_kernel=one_kernel)
        )
        log.info("%s", self.choices_in_words(device_type))

    def choices_in_words(self, device_type: str) -> str:
        """Say in a line what computes strains' graphs on a device, and why."""
        found, config = self.choices_on(device_type), self.config
        strategy, why = config.strategy, "as configured"
        if strategy == "auto":
            strategy = found.strategy
            why = "for single edges" if config.strategy_of_edges() else f"the default on {device_type}"
        kernel = "of DGL"
        if strategy not in DGL_STRATEGIES:
            kernel = default_kernel(device_type) if config.kernel == "auto" else config.kernel
        precision = "differences in bfloat16" if found.half else "differences in the base's precision"
        layers = "layers compiled" if found.compiled else "layers not compiled"
        return f"strategy {strategy} ({why}), kernel {kernel}, {precision}, {layers}"


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
