"""Node states of every strain: what travels through the network.

Layers are written against ``States`` and ``combine_states`` only, so that a strategy is free to keep states dense or
as what all strains share plus the rows in which they differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dglcell.perturbation.row_index import RowIndex, union


class States(ABC):
    """States of the N nodes of one type in B strains, H wide."""

    @staticmethod
    def shared(x_NH: Tensor) -> States:
        """States that all strains have in common, as before the first aggregation."""
        return SharedStates(x_NH, x_NH.new_empty(0, x_NH.shape[1]), None)

    @abstractmethod
    def map(self, function: Callable[[Tensor], Tensor]) -> States:
        """Apply a row-wise function (linear, norm, activation): [..., H] → [..., H']."""

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
            [*nodes.shape, H].
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


@dataclass(frozen=True)
class DenseStates(States):
    """Every row of every strain.

    Attributes:
        x_NBH: [N, B, H], or [N, 1, H] where every strain has the same states.
    """

    x_NBH: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> States:
        """See ``States.map``."""
        return DenseStates(function(self.x_NBH))

    def dense(self) -> Tensor:
        """See ``States.dense``."""
        return self.x_NBH

    def rows(self, nodes: Tensor, strain: int) -> Tensor:
        """See ``States.rows``."""
        column = strain if self.x_NBH.shape[1] > 1 else 0
        return self.x_NBH[:, column][nodes]

    def softmax_pool(self, gate: States, keep_NB: Tensor) -> Tensor:
        """See ``States.softmax_pool``."""
        share_NB = _shares(gate, keep_NB)
        if self.x_NBH.shape[1] == 1:
            return _shared_sums(share_NB, self.x_NBH[:, 0])
        # As in `_shared_sums`, small errors matter: `sum` adds pairwise, a batched product one node after the other.
        return (share_NB.unsqueeze(-1) * self.x_NBH).sum(0)


@dataclass(frozen=True)
class SharedStates(States):
    """What all strains share, and the rows in which a strain differs.

    Attributes:
        base_NH: [N, H] states of the wild type.
        rows_KH: [K, H] states of the (node, strain) pairs of ``index``.
        index: the pairs; None where no row differs (K = 0).
    """

    base_NH: Tensor
    rows_KH: Tensor
    index: RowIndex | None

    def map(self, function: Callable[[Tensor], Tensor]) -> States:
        """See ``States.map``."""
        if self.index is None:
            base_NH = function(self.base_NH)
            return SharedStates(base_NH, base_NH.new_empty(0, base_NH.shape[1]), None)
        both = function(torch.cat([self.base_NH, self.rows_KH]))
        base_NH, rows_KH = both.split([len(self.base_NH), len(self.rows_KH)])
        return SharedStates(base_NH, rows_KH, self.index)

    def dense(self) -> Tensor:
        """See ``States.dense``."""
        if self.index is None:
            return self.base_NH.unsqueeze(1)
        N, H = self.base_NH.shape
        x_NBH = self.base_NH.unsqueeze(1).expand(N, self.index.num_strains, H)
        return x_NBH.reshape(-1, H).index_copy(0, self.index.keys, self.rows_KH).view(N, -1, H)

    def rows(self, nodes: Tensor, strain: int) -> Tensor:
        """See ``States.rows``."""
        if self.index is None:
            return self.base_NH[nodes]
        return self.at(self.index.of(nodes.flatten(), strain)).view(*nodes.shape, self.base_NH.shape[1])

    def at(self, index: RowIndex) -> Tensor:
        """[K', H] states of other (node, strain) pairs: changed rows where there are, else the base."""
        if self.index is None:
            return self.base_NH.index_select(0, index.nodes)
        if index is self.index:
            return self.rows_KH
        position = torch.where(*self.index.find(index), index.nodes + len(self.rows_KH))
        return torch.cat([self.rows_KH, self.base_NH]).index_select(0, position)

    def softmax_pool(self, gate: States, keep_NB: Tensor) -> Tensor:
        """See ``States.softmax_pool``: the base once for all strains, corrected by the rows that differ.

        Logits are one wide, so that dense ones cost little; subtracting a lost node's share from the wild type's
        softmax instead would leave rounding errors alone where that node has nearly all of it.
        """
        share_NB = _shares(gate, keep_NB)
        pooled_BH = _shared_sums(share_NB, self.base_NH)
        if self.index is None:
            return pooled_BH
        change_KH = self.rows_KH - self.base_NH.index_select(0, self.index.nodes)
        share_K1 = share_NB.reshape(-1).index_select(0, self.index.keys).unsqueeze(1)
        return pooled_BH.index_add(0, self.index.strains, (change_KH * share_K1).to(pooled_BH.dtype))


def _shares(gate: States, keep_NB: Tensor) -> Tensor:
    """[N, B] softmax of the logits over the nodes that a strain keeps; zero for lost nodes."""
    logits_NB = gate.dense().squeeze(-1).expand(-1, keep_NB.shape[1])
    share_NB = torch.softmax(logits_NB.masked_fill(~keep_NB, torch.finfo(logits_NB.dtype).min), dim=0)
    # The product matters only where a strain keeps no node at all: it pools to zero.
    return share_NB * keep_NB


def _shared_sums(share_NB: Tensor, x_NH: Tensor) -> Tensor:
    """[B, H] weighted sums of rows that all strains share: the first strain's, plus what the others differ from it.

    The difference of two strains is what matters; so computed, its rounding error is small against it, not against
    the sums.
    """
    first_N1 = share_NB[:, :1]
    return first_N1.T @ x_NH + (share_NB - first_N1).T @ x_NH


def combine_states(function: Callable[..., Tensor], states: Sequence[States]) -> States:
    """Apply a row-wise function of several states of the same nodes, e.g. a sum over relations.

    The result is shared where all of them are, over the union of their changed rows; else dense.
    """
    shared = [s for s in states if isinstance(s, SharedStates)]
    if len(shared) < len(states):
        return DenseStates(function(*(s.dense() for s in states)))
    base_NH = function(*(s.base_NH for s in shared))
    indices = [s.index for s in shared if s.index is not None]
    if not indices:
        return SharedStates(base_NH, base_NH.new_empty(0, base_NH.shape[1]), None)
    index = union(indices)
    return SharedStates(base_NH, function(*(s.at(index) for s in shared)), index)


def sum_states(states: Sequence[States]) -> States:
    """The sum of several states of the same nodes.

    Like ``combine_states`` with an addition, but shared states pay for the rows each of them has, not for the union
    of all rows once per term.
    """
    shared = [s for s in states if isinstance(s, SharedStates)]
    indices = [s.index for s in shared if s.index is not None]
    if len(shared) < len(states) or len(indices) < 2:
        return combine_states(_add, states)
    base_NH = _add(*(s.base_NH for s in shared))
    index = union(indices)
    rows_KH = base_NH.index_select(0, index.nodes)
    for term in shared:
        if term.index is not None:
            _, position = index.find(term.index)
            change_KH = term.rows_KH - term.base_NH.index_select(0, term.index.nodes)
            # Under autocast, terms may have other dtypes than their sum.
            rows_KH = rows_KH.index_add(0, position, change_KH.to(rows_KH.dtype))
    return SharedStates(base_NH, rows_KH, index)


def _add(*terms: Tensor) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
