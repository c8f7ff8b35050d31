"""Compute the heterograph model in PyTorch Geometric and in a loop of DGL, with this package's weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import AttentionalAggregation

from benchmarks.methods import Method, UnsupportedError
from benchmarks.workload import Workload
from dglcell.graph.resident import ResidentCell
from dglcell.graph.resident_graph import import_dgl
from dglcell.graph.schema import GENE, Relation
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.models.terms.scores import Genes, Graph
from dglcell.models.terms.term import Seen
from dglcell.nn.blocks import AttentionPooling
from dglcell.nn.convolutions import GINConv, SAGEConv
from dglcell.nn.hetero_layer import HeteroLayer, RelationConv
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.sent import keep_masks

# This module imports ``torch_geometric``, so importing it fails where that is missing.


class Update(nn.Module):
    """Compute what a convolution does after aggregation, with the parameters of one of this package's convolutions."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    @property
    def mean(self) -> bool:
        """Return whether messages are averaged; they are summed otherwise."""
        return isinstance(self.conv, SAGEConv)

    def forward(self, x: Tensor, received: Tensor) -> Tensor:
        """Return new states [..., H]."""
        if isinstance(self.conv, SAGEConv):
            out: Tensor = self.conv.itself(x) + self.conv.neighbours(received)
            return out
        assert isinstance(self.conv, GINConv)
        out = self.conv.mlp((1 + self.conv.epsilon) * x + received)
        return out


class MaskedConv(MessagePassing):
    """Convolve B copies of the graph side by side; messages are multiplied by a Boolean mask per edge and copy.

    Shapes:
        x [B · N, H], edges [2, B · E], mask [B · E], degree [B · N, 1] → [B · N, H].
    """

    def __init__(self, conv: nn.Module) -> None:
        super().__init__(aggr="add")
        self.update_states = Update(conv)

    def forward(self, x: Tensor, edges: Tensor, mask: Tensor, degree: Tensor) -> Tensor:
        """Return new states."""
        received = self.propagate(edges, x=x, mask=mask)
        if self.update_states.mean:
            received = received / degree.to(received.dtype)
        out: Tensor = self.update_states(x, received)
        return out

    def message(self, x_j: Tensor, mask: Tensor) -> Tensor:
        """Return masked messages [B · E, H]."""
        return x_j * mask.unsqueeze(-1).to(x_j.dtype)


class SharedConv(nn.Module):
    """Convolve all strains with one edge list; lost nodes' rows are zeroed before and after.

    ``EdgeIndex``, whose CSR forms are cached, makes aggregation a sparse product on [N, B · H].

    Shapes:
        x [N, B, H], edges [2, E], keep [N, B, 1], degree [N, B, 1] → [N, B, H].
    """

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.update_states = Update(conv)

    def forward(self, x: Tensor, edges: EdgeIndex, keep: Tensor, degree: Tensor) -> Tensor:
        """Return new states."""
        keep = keep.to(x.dtype)
        received = self.aggregated(edges, x * keep) * keep
        if self.update_states.mean:
            received = received / degree.to(received.dtype)
        out: Tensor = self.update_states(x, received)
        return out

    def aggregated(self, edges: EdgeIndex, x: Tensor) -> Tensor:
        """Return sums over in-edges, [N, B, H]; half precisions use float32, which sparse products on a CPU need."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        # `EdgeIndex` itself keeps ones in float32.
        ones_E = None if dtype == torch.float32 else torch.ones(edges.shape[1], dtype=dtype, device=x.device)
        with torch.autocast(x.device.type, enabled=False), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse .* (beta|disabled)")
            out = edges.matmul(x.to(dtype).flatten(1), ones_E, transpose=True)
        assert isinstance(out, Tensor)
        return out.view_as(x).to(x.dtype)


class Layout:
    """Give graphs of several strains to convolutions; rows are kept in the order of strains, which pooling needs.

    Args:
        cell: the wild type.
        relations: of genes, those in use.
        keep_NB: [N, B] which genes every strain keeps.
    """

    def __init__(self, cell: ResidentCell, relations: Iterable[Relation], keep_NB: Tensor) -> None:
        self.cell, self.relations, self.keep_NB = cell, list(relations), keep_NB
        self.num_strains = keep_NB.shape[1]
        self.strain_of_kept, self.gene_of_kept = keep_NB.T.nonzero().unbind(1)
        self.inputs: dict[Relation, tuple[Any, ...]] = {relation: self.of(relation) for relation in self.relations}

    def of(self, relation: Relation) -> tuple[Any, ...]:
        """Return what a convolution gets of a relation, made once and kept on the device."""
        return ()

    def spread(self, x_NH: Tensor) -> Tensor:
        """Return the same states for every strain, [N, B, H]."""
        return x_NH.unsqueeze(1).repeat(1, self.num_strains, 1)

    def kept_rows(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows of kept genes and the strain of each, in order of strains."""
        return x[self.gene_of_kept, self.strain_of_kept], self.strain_of_kept


class Replicated(Layout):
    """This layout has edge lists and masks of a disjoint union of strains."""

    def of(self, relation: Relation) -> tuple[Any, ...]:
        N, keep = len(self.keep_NB), self.keep_NB.T.flatten()
        shift_B1 = N * torch.arange(self.num_strains, device=keep.device).unsqueeze(1)
        src, dst = ((ends + shift_B1).flatten() for ends in (self.cell[relation].src, self.cell[relation].dst))
        mask = keep[src] & keep[dst]
        degree = torch.zeros(len(keep), device=keep.device).index_add_(0, dst, mask.float())
        return torch.stack([src, dst]), mask, degree.clamp(min=1).unsqueeze(1)

    def spread(self, x_NH: Tensor) -> Tensor:
        """Return the same states for every strain, [B · N, H]."""
        return x_NH.repeat(self.num_strains, 1)

    @cached_property
    def _kept(self) -> Tensor:
        return self.keep_NB.T.flatten().nonzero().squeeze(1)

    def kept_rows(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.index_select(0, self._kept), self.strain_of_kept


class Shared(Layout):
    """This layout has one edge list per relation, and which genes strains keep."""

    def of(self, relation: Relation) -> tuple[Any, ...]:
        edges = torch.stack([self.cell[relation].src, self.cell[relation].dst])
        kept_EB = self.keep_NB[edges[0]].float()
        degree = torch.zeros(self.keep_NB.shape, device=edges.device).index_add_(0, edges[1], kept_EB)
        N = len(self.keep_NB)
        edges = EdgeIndex(edges, sparse_size=(N, N), sort_order="col").fill_cache_()
        return edges, self.keep_NB.unsqueeze(-1), degree.clamp(min=1).unsqueeze(-1)


class LoopConv(nn.Module):
    """Convolve one strain after the other, each on its own graph of DGL.

    Shapes:
        x [B, N, H], a graph for each strain → [B, N, H].
    """

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.update_states = Update(conv)

    def forward(self, x: Tensor, graphs: Sequence[Any], *_: Tensor) -> Tensor:
        """Return new states."""
        ops = import_dgl().ops
        reduce = ops.copy_u_mean if self.update_states.mean else ops.copy_u_sum
        received = torch.stack([reduce(graph, rows) for graph, rows in zip(graphs, x, strict=True)])
        out: Tensor = self.update_states(x, received)
        return out


class Subgraphs(Layout):
    """This layout has a graph for each strain by ``dgl.edge_subgraph``, made anew in each step."""

    def spread(self, x_NH: Tensor) -> Tensor:
        """Return the same states for every strain, [B, N, H], and make the strains' graphs."""
        dgl, graphs = import_dgl(), []
        for keep in self.keep_NB.unbind(1):
            kept = {r: (keep[self.cell[r].src] & keep[self.cell[r].dst]).nonzero().squeeze(1) for r in self.relations}
            graphs.append(dgl.edge_subgraph(self.cell.heterograph(), kept, relabel_nodes=False, store_ids=False))
        self.inputs = {r: ([graph[r] for graph in graphs],) for r in self.relations}
        return x_NH.repeat(self.num_strains, 1, 1)

    def kept_rows(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[self.strain_of_kept, self.gene_of_kept], self.strain_of_kept


# These classes compute the heterograph model with the weights of this package's model.


FORMS: dict[str, Callable[[nn.Module], nn.Module]] = {"replicated": MaskedConv, "spmm": SharedConv, "loop": LoopConv}


LAYOUTS: dict[str, Callable[..., Layout]] = {"replicated": Replicated, "spmm": Shared, "loop": Subgraphs}


class PygLayer(nn.Module):
    """This layer is one round of message passing over all relations.

    Args:
        layer: layer whose convolutions are used.
        form: form of aggregation, a key of ``FORMS``.
        config: how relations are combined.
    """

    def __init__(self, layer: HeteroLayer, form: str, config: HeteroCellConfig) -> None:
        super().__init__()
        members = [member for member in layer.convs if isinstance(member, RelationConv)]
        self.relations = layer.relations
        self.convs = nn.ModuleList(FORMS[form](member.conv) for member in members)
        self.after = nn.ModuleList(member.after for member in members)
        self.mean, self.residual = config.cross_relation == "mean", config.residual
        self.mixer = dict(layer.mixers.items()).get(GENE)

    def forward(self, x: Tensor, inputs: dict[Relation, tuple[Any, ...]]) -> Tensor:
        """Return new states, in the layout of ``x``."""
        members = zip(self.relations, self.convs, self.after, strict=True)
        outputs: list[Tensor] = [after(conv(x, *inputs[relation])) for relation, conv, after in members]
        if self.mixer is not None:
            total = self.mixer(*(out.flatten(0, -2) for out in outputs)).view_as(x)
        else:
            total = sum(outputs[1:], outputs[0]) / (len(outputs) if self.mean else 1)
        return x + total if self.residual else total


class PygCell(Method):
    """Compute as the method that came before: in a step, encode wild type and strains, pool, take the difference.

    Edge lists, masks and degrees of the batch are made here, once, so that steps do not pay for them.

    Args:
        weights: model whose submodules are used.
        genotypes: the batch, on the device of ``weights``.
        form: ``replicated``, ``spmm`` or ``loop``.

    Raises:
        UnsupportedError: relations with other nodes than genes, edge weights, or parts of the model that only this
            package's own methods have.
    """

    weights: HeteroCell

    def __init__(self, weights: HeteroCell, genotypes: GenotypeBatch, form: str) -> None:
        super().__init__()
        _check_supported(weights)
        self.weights = weights
        graph, self.genes = weights.terms["graph"], dict(weights.terms.items()).get("genes")
        assert isinstance(graph, Graph)
        self.head, pool = graph.head, graph.pools[GENE]
        assert isinstance(pool, AttentionPooling)
        self.pool = AttentionalAggregation(gate_nn=pool.gate, nn=pool.value)
        layers = [layer for layer in weights.encoder.layers if isinstance(layer, HeteroLayer)]
        self.layers = nn.ModuleList(PygLayer(layer, form, weights.config) for layer in layers)
        keep_NB = keep_masks(weights.cell, genotypes)[GENE]
        self.wild_type = _layout(weights, torch.ones_like(keep_NB[:, :1]), form)
        self.strains = _layout(weights, keep_NB, form)

    def forward(self, genotypes: GenotypeBatch) -> Tensor:
        """Return predictions [B, T] of the strains that the method was built for."""
        weights = self.weights
        wild_type = self._encode(self.wild_type)
        difference = self._pool(self.wild_type, wild_type) - self._pool(self.strains, self._encode(self.strains))
        global_part: Tensor = self.head(difference * weights.cell.num_nodes[GENE])
        if not isinstance(self.genes, Genes):
            return global_part
        x_BKH = wild_type.flatten(0, -2)[genotypes.padded()[0]]
        seen = Seen(weights.cell, genotypes, {}, {}, x_BKH, torch.zeros_like)  # of which the term reads strains and x
        return weights.combine([global_part, self.genes(seen)])

    def _encode(self, layout: Layout) -> Tensor:
        x = layout.spread(self.weights.encoder.inputs(GENE))
        for layer in self.layers:
            x = layer(x, layout.inputs)
        return x

    def _pool(self, layout: Layout, x: Tensor) -> Tensor:
        """Pool states to [B, H]."""
        rows, strains = layout.kept_rows(x)
        out: Tensor = self.pool(rows, strains, dim_size=layout.num_strains)
        return out


def _used(weights: HeteroCell) -> list[Relation]:
    """Return the relations that any layer uses."""
    layers = [layer for layer in weights.encoder.layers if isinstance(layer, HeteroLayer)]
    return list(dict.fromkeys(relation for layer in layers for relation in layer.relations))


def _check_supported(weights: HeteroCell) -> None:
    config, used = weights.config, _used(weights)
    for fault, wrong in (
        ("relations with other nodes than genes", any(r[0] != GENE or r[2] != GENE for r in used)),
        ("edge weights", any(weights.cell[r].weight is not None for r in used)),
        ("pools of other nodes than genes", config.pool != [GENE]),
    ):
        if wrong:
            raise UnsupportedError(f"the PyG methods do not compute {fault}")


def _layout(weights: HeteroCell, keep_NB: Tensor, form: str) -> Layout:
    return LAYOUTS[form](weights.cell, _used(weights), keep_NB)


def build_pyg(workload: Workload, device: str, *, form: str) -> PygCell:
    """Build the method on ``device``."""
    return PygCell(workload.weights().to(device), workload.genotypes, form)
