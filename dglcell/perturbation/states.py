"""Node states of every strain: what travels through the network.

Layers are written against ``States`` and the functions of ``state_sums`` only, so that a strategy is free to keep
states dense or as what all strains share plus the rows in which they differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from dglcell.perturbation.kept_base import Origin
from dglcell.perturbation.row_index import RowIndex
from dglcell.perturbation.row_wise import Rows, add_by, shared_sums
from dglcell.perturbation.strain_sums import Message


class States(ABC):
    """States of the N nodes of one type in B strains, H wide.

    Attributes:
        pending: where they are a product that is not taken yet, that and the states of the nodes that send.
    """

    pending: tuple[Message, States] | None = None

    @staticmethod
    def shared(x_NH: Tensor, origin: Origin | None = None) -> States:
        """States that all strains have in common, as before the first aggregation.

        Args:
            x_NH: [N, H].
            origin: of what is computed from them, where base rows are kept.
        """
        return SharedStates(x_NH, None, origin)

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Of the states."""

    @abstractmethod
    def dense(self) -> Tensor:
        """[N, B, H]; or [N, 1, H] where every strain has the same states."""

    @abstractmethod
    def rows(self, nodes: Tensor, strain: int) -> Tensor:
        """The states of chosen nodes in one strain.

        Args:
            nodes: any shape of node indices.
            strain: column; 0 is the wild type where the batch was made by ``GenotypeBatch.with_wild_type``.

        Returns:
            ``[*nodes.shape, H]``.
        """

    @abstractmethod
    def softmax_pool(self, gate: States, keep_NB: Tensor) -> Tensor:
        """Softmax-weighted mean over the kept nodes of every strain.

        Args:
            gate: logits of the same nodes, one wide.
            keep_NB: [N, B] bool.

        Returns:
            [B, H]; zero for a strain that keeps none of these nodes.
        """


@dataclass(frozen=True, eq=False)
class DenseStates(States):
    """Every row of every strain.

    Attributes:
        x_NBH: [N, B, H], or [N, 1, H] where every strain has the same states.
    """

    x_NBH: Tensor

    @property
    def dtype(self) -> torch.dtype:
        """See ``States.dtype``."""
        return self.x_NBH.dtype

    def dense(self) -> Tensor:
        """See ``States.dense``."""
        return self.x_NBH

    def rows(self, nodes: Tensor, strain: int) -> Tensor:
        """See ``States.rows``."""
        column = strain if self.x_NBH.shape[1] > 1 else 0
        return self.x_NBH[:, column][nodes]

    def softmax_pool(self, gate: States, keep_NB: Tensor) -> Tensor:
        """See ``States.softmax_pool``."""
        share_NB = pooling_shares(gate, keep_NB)
        if self.x_NBH.shape[1] == 1:
            return shared_sums(share_NB, self.x_NBH[:, 0])
        # As in `shared_sums`, small errors matter: `sum` adds pairwise, a batched product one node after the other.
        return (share_NB.unsqueeze(-1) * self.x_NBH).sum(0)


@dataclass(frozen=True, eq=False)
class SharedStates(States):
    """What all strains share, and the rows in which a strain differs.

    Attributes:
        x_XH: [N + K, H] states of the wild type's N nodes, then of the K (node, strain) pairs of ``index``.
        index: the pairs; None where no row differs (K = 0).
        origin: of the base rows, where they are kept for other batches.
    """

    x_XH: Tensor
    index: RowIndex | None
    origin: Origin | None = None

    @property
    def dtype(self) -> torch.dtype:
        """See ``States.dtype``."""
        return self.x_XH.dtype

    @property
    def base_NH(self) -> Tensor:
        """[N, H] states of the wild type."""
        return self.x_XH if self.index is None else self.x_XH[: self.index.num_nodes]

    @property
    def rows_KH(self) -> Tensor:
        """[K, H] states of the pairs that differ."""
        return self.x_XH[len(self.base_NH) :]

    def dense(self) -> Tensor:
        """See ``States.dense``."""
        if self.index is None:
            return self.x_XH.unsqueeze(1)
        every = RowIndex(torch.ones_like(self.index.mask_BN))
        # Strain by strain, as layers are computed on a CPU.
        rows = Rows(self.x_XH, self.positions(every)).all()
        return rows.view(self.index.num_strains, self.index.num_nodes, -1).transpose(0, 1)

    def rows(self, nodes: Tensor, strain: int) -> Tensor:
        """See ``States.rows``."""
        if self.index is None:
            return self.x_XH[nodes]
        position = self.index.table[strain].long()[nodes]
        return self.x_XH[torch.where(position < len(self.index), position + self.index.num_nodes, nodes)]

    def at(self, index: RowIndex | None) -> Rows:
        """The wild type's rows, then those of other pairs: changed ones where there are, else the wild type's."""
        if index is None or index is self.index:
            return Rows(self.x_XH)
        everyone = torch.arange(index.num_nodes, device=index.mask_BN.device)
        return Rows(self.x_XH, torch.cat([everyone, self.positions(index)]), shared=index.num_nodes)

    def positions(self, index: RowIndex) -> Tensor:
        """[K'] rows of ``x_XH`` for the pairs of ``index``."""
        if self.index is None:
            return index.nodes
        position = self.index.table.flatten()[index.keys].long()
        return torch.where(position < len(self.index), position + index.num_nodes, index.nodes)

    def softmax_pool(self, gate: States, keep_NB: Tensor) -> Tensor:
        """See ``States.softmax_pool``: the base once for all strains, corrected by the rows that differ.

        Logits are one wide, so that dense ones cost little; subtracting a lost node's share from the wild type's
        softmax instead would leave rounding errors alone where that node has nearly all of it.
        """
        share_NB = pooling_shares(gate, keep_NB)
        pooled_BH = shared_sums(share_NB, self.base_NH)
        if self.index is None:
            return pooled_BH
        change_KH = self.rows_KH - Rows(self.base_NH, self.index.nodes).all()
        share_K1 = share_NB.T.reshape(-1).index_select(0, self.index.keys).unsqueeze(1)
        return add_by(pooled_BH, self.index.strains, change_KH * share_K1)


def pooling_shares(gate: States, keep_NB: Tensor) -> Tensor:
    """[N, B] softmax of the logits over the nodes that a strain keeps; zero for lost nodes."""
    logits_NB = gate.dense().squeeze(-1).expand(-1, keep_NB.shape[1])
    share_NB = torch.softmax(logits_NB.masked_fill(~keep_NB, torch.finfo(logits_NB.dtype).min), dim=0)
    # The product matters only where a strain keeps no node at all: it pools to zero.
    return share_NB * keep_NB
