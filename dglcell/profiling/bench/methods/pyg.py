"""The heterograph model in PyTorch Geometric, with the weights of this package's model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import AttentionalAggregation

from dglcell.graph.schema import GENE, Relation
from dglcell.models.config import HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.nn.heads import AttentionPooling
from dglcell.nn.hetero_layer import HeteroLayer, RelationConv
from dglcell.perturbation.deletions import keep_masks
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.profiling.bench.methods.method import Method, UnsupportedError
from dglcell.profiling.bench.methods.pyg_convs import MaskedConv, Replicated, Shared, SharedConv, SpmmConv
from dglcell.profiling.bench.workload import Workload

FORMS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "replicated": MaskedConv,
    "node_dim": SharedConv,
    "spmm": SpmmConv,
}


class Layout(Protocol):
    """Graphs of several strains as PyG gets them."""

    inputs: dict[Relation, tuple[Tensor, Tensor, Tensor]]
    num_strains: int

    def spread(self, x_NH: Tensor) -> Tensor:
        """The same states for every strain."""

    def kept_rows(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of kept genes and the strain of each."""


class PygLayer(nn.Module):
    """One round of message passing over all relations.

    Args:
        layer: whose convolutions are used.
        form: of aggregation, a key of ``FORMS``.
        config: how relations are combined.
    """

    def __init__(self, layer: HeteroLayer, form: str, config: HeteroCellConfig) -> None:
        super().__init__()
        members = [member for member in layer.convs if isinstance(member, RelationConv)]
        self.relations = layer.relations
        self.convs = nn.ModuleList(FORMS[form](member.conv) for member in members)
        self.after = nn.ModuleList(member.after for member in members)
        self.mean, self.residual = config.cross_relation == "mean", config.residual
        self.mixer = layer.mixer(GENE)

    def forward(self, x: Tensor, inputs: dict[Relation, tuple[Tensor, Tensor, Tensor]]) -> Tensor:
        """New states, in the layout of ``x``."""
        members = zip(self.relations, self.convs, self.after, strict=True)
        outputs: list[Tensor] = [after(conv(x, *inputs[relation])) for relation, conv, after in members]
        if self.mixer is not None:
            total = self.mixer(*(out.flatten(0, -2) for out in outputs)).view_as(x)
        else:
            total = sum(outputs[1:], outputs[0]) / (len(outputs) if self.mean else 1)
        return x + total if self.residual else total


class PygCell(Method):
    """As the method that came before: encode the wild type once per step and all strains, pool, take the difference.

    Edge lists, masks and degrees of the batch are made here, once, so that steps do not pay for them.

    Args:
        weights: whose submodules are used.
        genotypes: the batch, on the device of ``weights``.
        form: ``replicated``, ``node_dim`` or ``spmm``.

    Raises:
        UnsupportedError: relations with other nodes than genes, edge weights, or parts of the model that only this
            package's own methods have.
    """

    weights: HeteroCell

    def __init__(self, weights: HeteroCell, genotypes: GenotypeBatch, form: str) -> None:
        super().__init__()
        _check_supported(weights)
        self.weights = weights
        pool = weights.pools[GENE]
        assert isinstance(pool, AttentionPooling)
        self.pool = AttentionalAggregation(gate_nn=pool.gate, nn=pool.value)
        layers = [layer for layer in weights.encoder.layers if isinstance(layer, HeteroLayer)]
        self.layers = nn.ModuleList(PygLayer(layer, form, weights.config) for layer in layers)
        keep_NB = keep_masks(weights.cell, genotypes)[GENE]
        self.wild_type = _layout(weights, torch.ones_like(keep_NB[:, :1]), form)
        self.strains = _layout(weights, keep_NB, form)

    def forward(self, genotypes: GenotypeBatch) -> Tensor:
        """[B, T] predictions of the strains that the method was built for."""
        weights = self.weights
        wild_type = self._encode(self.wild_type)
        difference = self._pool(self.wild_type, wild_type) - self._pool(self.strains, self._encode(self.strains))
        if weights.config.scale_difference:
            difference = difference * weights.cell.num_nodes[GENE]
        global_part: Tensor = weights.global_head(difference)
        if weights.local_head is None:
            return global_part
        genes_BK, present_BK = genotypes.padded()
        local_part = weights.local_head(wild_type.flatten(0, -2)[genes_BK], genes_BK, present_BK)
        return weights.combination(global_part, local_part)[0]

    def _encode(self, layout: Layout) -> Tensor:
        x = layout.spread(self.weights.encoder.inputs(GENE))
        for layer in self.layers:
            x = layer(x, layout.inputs)
        return x

    def _pool(self, layout: Layout, x: Tensor) -> Tensor:
        """[B, H]."""
        rows, strains = layout.kept_rows(x)
        out: Tensor = self.pool(rows, strains, dim_size=layout.num_strains)
        return out


def _used(weights: HeteroCell) -> list[Relation]:
    """The relations of any layer."""
    layers = [layer for layer in weights.encoder.layers if isinstance(layer, HeteroLayer)]
    return list(dict.fromkeys(relation for layer in layers for relation in layer.relations))


def _check_supported(weights: HeteroCell) -> None:
    config, used = weights.config, _used(weights)
    for fault, wrong in (
        ("relations with other nodes than genes", any(r[0] != GENE or r[2] != GENE for r in used)),
        ("edge weights", any(weights.cell[r].weight is not None for r in used)),
        ("a gated combination", config.combination == "gated"),
        ("pools of other nodes than genes", config.pool != [GENE]),
    ):
        if wrong:
            raise UnsupportedError(f"the PyG methods do not compute {fault}")


def _layout(weights: HeteroCell, keep_NB: Tensor, form: str) -> Layout:
    if form == "replicated":
        return Replicated(weights.cell, _used(weights), keep_NB)
    return Shared(weights.cell, _used(weights), keep_NB, csr=form == "spmm")


def build_pyg(workload: Workload, device: str, *, form: str, compiled: bool = False) -> PygCell:
    """The method on ``device``.

    With ``compiled``, torch.compile takes every convolution, forward and backward, for any number of edges: all of them
    share one compilation. Compiled as a whole, the model would get wrong gradients on a CPU (torch 2.13).
    """
    method = PygCell(workload.weights().to(device), workload.genotypes, form)
    if compiled:
        for module in method.modules():
            if isinstance(module, MessagePassing):
                module.compile(dynamic=True)
    return method
