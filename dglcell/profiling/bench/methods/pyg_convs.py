"""Aggregation over the strains' graphs with PyTorch Geometric, in the three ways that library offers.

This module imports ``torch_geometric``; whoever imports it must be ready for that to be missing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.nn import MessagePassing

from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE, Relation
from dglcell.nn.convolutions import GINConv, SAGEConv


class Update(nn.Module):
    """What a convolution does after aggregation, with the parameters of one of this package's convolutions."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    @property
    def mean(self) -> bool:
        """Whether messages are averaged; summed otherwise."""
        return isinstance(self.conv, SAGEConv)

    def forward(self, x: Tensor, received: Tensor) -> Tensor:
        """[..., H] new states."""
        if isinstance(self.conv, SAGEConv):
            out: Tensor = self.conv.itself(x) + self.conv.neighbours(received)
            return out
        assert isinstance(self.conv, GINConv)
        out = self.conv.mlp((1 + self.conv.epsilon) * x + received)
        return out


class MaskedConv(MessagePassing):
    """B copies of the graph side by side; messages are multiplied by a Boolean mask per edge and copy.

    Shapes:
        x [B · N, H], edges [2, B · E], mask [B · E], degree [B · N, 1] → [B · N, H].
    """

    def __init__(self, conv: nn.Module) -> None:
        super().__init__(aggr="add")
        self.update_states = Update(conv)

    def forward(self, x: Tensor, edges: Tensor, mask: Tensor, degree: Tensor) -> Tensor:
        """New states."""
        received = self.propagate(edges, x=x, mask=mask)
        if self.update_states.mean:
            received = received / degree.to(received.dtype)
        out: Tensor = self.update_states(x, received)
        return out

    def message(self, x_j: Tensor, mask: Tensor) -> Tensor:
        """[B · E, H] masked messages."""
        return x_j * mask.unsqueeze(-1).to(x_j.dtype)


class SharedConv(MessagePassing):
    """One edge list for all strains; lost nodes' rows are zeroed before and after.

    Shapes:
        x [N, B, H], edges [2, E], keep [N, B, 1], degree [N, B, 1] → [N, B, H].
    """

    def __init__(self, conv: nn.Module) -> None:
        super().__init__(aggr="add", node_dim=-3)
        self.update_states = Update(conv)

    def forward(self, x: Tensor, edges: Tensor, keep: Tensor, degree: Tensor) -> Tensor:
        """New states."""
        keep = keep.to(x.dtype)
        received = self.aggregated(edges, x * keep) * keep
        if self.update_states.mean:
            received = received / degree.to(received.dtype)
        out: Tensor = self.update_states(x, received)
        return out

    def aggregated(self, edges: Tensor, x: Tensor) -> Tensor:
        """[N, B, H] sums over in-edges; takes E · B · H memory."""
        out: Tensor = self.propagate(edges, x=x)
        return out


class SpmmConv(SharedConv):
    """The same with ``EdgeIndex``, whose cached CSR forms make aggregation a sparse product on [N, B · H]."""

    def aggregated(self, edges: Tensor, x: Tensor) -> Tensor:
        """[N, B, H] sums over in-edges, of half precisions in float32, which sparse products on a CPU need."""
        assert isinstance(edges, EdgeIndex)
        dtype = torch.promote_types(x.dtype, torch.float32)
        # `EdgeIndex` keeps ones in float32 by itself.
        ones_E = None if dtype == torch.float32 else torch.ones(edges.shape[1], dtype=dtype, device=x.device)
        with torch.autocast(x.device.type, enabled=False), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse .* (beta|disabled)")
            out = edges.matmul(x.to(dtype).flatten(1), ones_E, transpose=True)
        assert isinstance(out, Tensor)
        return out.view_as(x).to(x.dtype)


class Replicated:
    """Edge lists and masks of a disjoint union of strains, made once and kept on the device.

    Args:
        cell: the wild type.
        relations: of genes, those in use.
        keep_NB: [N, B] which genes every strain keeps.
    """

    def __init__(self, cell: ResidentCell, relations: Iterable[Relation], keep_NB: Tensor) -> None:
        N, self.num_strains = keep_NB.shape
        keep = keep_NB.T.flatten()
        shift_B1 = N * torch.arange(self.num_strains, device=keep.device).unsqueeze(1)
        self.inputs: dict[Relation, tuple[Tensor, Tensor, Tensor]] = {}
        for relation in relations:
            src = (cell[relation].src + shift_B1).flatten()
            dst = (cell[relation].dst + shift_B1).flatten()
            mask = keep[src] & keep[dst]
            degree = torch.zeros(len(keep), device=keep.device).index_add_(0, dst, mask.float())
            self.inputs[relation] = torch.stack([src, dst]), mask, degree.clamp(min=1).unsqueeze(1)
        self.kept = keep.nonzero().squeeze(1)
        self.strain_of_kept = self.kept.div(N, rounding_mode="floor")

    def spread(self, x_NH: Tensor) -> Tensor:
        """[B · N, H] the same states for every strain."""
        return x_NH.repeat(self.num_strains, 1)

    def kept_rows(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of kept genes and the strain of each, in order of strains."""
        return x.index_select(0, self.kept), self.strain_of_kept


class Shared:
    """One edge list per relation, and which genes strains keep.

    Args:
        cell: the wild type.
        relations: of genes, those in use.
        keep_NB: [N, B] which genes every strain keeps.
        csr: as ``EdgeIndex`` with both CSR forms cached.
    """

    def __init__(
        self, cell: ResidentCell, relations: Iterable[Relation], keep_NB: Tensor, *, csr: bool = False
    ) -> None:
        self.num_strains = keep_NB.shape[1]
        keep_NB1 = keep_NB.unsqueeze(-1)
        self.inputs: dict[Relation, tuple[Tensor, Tensor, Tensor]] = {}
        for relation in relations:
            edges = torch.stack([cell[relation].src, cell[relation].dst])
            kept_EB = keep_NB[edges[0]].float()
            degree = torch.zeros(keep_NB.shape, device=edges.device).index_add_(0, edges[1], kept_EB)
            if csr:
                N = cell.num_nodes[GENE]
                edges = EdgeIndex(edges, sparse_size=(N, N), sort_order="col").fill_cache_()
            self.inputs[relation] = edges, keep_NB1, degree.clamp(min=1).unsqueeze(-1)
        # In order of strains, as pooling wants them.
        self.strain_of_kept, self.gene_of_kept = keep_NB.T.nonzero().unbind(1)

    def spread(self, x_NH: Tensor) -> Tensor:
        """[N, B, H] the same states for every strain."""
        return x_NH.unsqueeze(1).repeat(1, self.num_strains, 1)

    def kept_rows(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of kept genes and the strain of each, in order of strains."""
        return x[self.gene_of_kept, self.strain_of_kept], self.strain_of_kept
