"""Node states of every strain: what travels through the network.

Layers are written against ``States``, ``combine_states`` and ``sum_states`` only, so that a strategy is free to keep
states dense or as what all strains share plus the rows in which they differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dglcell.perturbation.kept_base import Origin
from dglcell.perturbation.row_blocks import Shape
from dglcell.perturbation.row_index import RowIndex, union
from dglcell.perturbation.row_wise import Rows, RowWise, Term, add_by, shared_sums, sum_terms
from dglcell.perturbation.strain_sums import Message, Source, StrainTerm, sum_by_strain, worthwhile


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

    @abstractmethod
    def map(self, function: RowWise | Callable[[Tensor], Tensor]) -> States:
        """Apply a row-wise function (linear, norm, activation): [..., H] → [..., H']."""

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

    def map(self, function: RowWise | Callable[[Tensor], Tensor]) -> States:
        """See ``States.map``."""
        return combine_states(function, [self])

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

    def map(self, function: RowWise | Callable[[Tensor], Tensor]) -> States:
        """See ``States.map``."""
        return combine_states(function, [self])

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


Addend = tuple[RowWise | None, Sequence[States]]
"""A row-wise function and its arguments; None for one argument as it is."""


def combine_states(function: RowWise | Callable[..., Tensor], states: Sequence[States]) -> States:
    """Apply a row-wise function of several states of the same nodes.

    The result is shared where all of them are, over the union of their changed rows; else dense.

    Args:
        function: a ``RowWise`` is evaluated block by block; any other callable at once.
        states: its arguments.
    """
    if isinstance(function, RowWise):
        return sum_updates([(function, states)])
    shared = [s for s in states if isinstance(s, SharedStates)]
    if len(shared) < len(states):
        return DenseStates(function(*(s.dense() for s in states)))
    index = _union(shared)
    return SharedStates(function(*(s.at(index).all() for s in shared)), index)


def sum_states(states: Sequence[States]) -> States:
    """The sum of several states of the same nodes; shared where all of them are."""
    return states[0] if len(states) == 1 else sum_updates([(None, [s]) for s in states])


def sum_updates(addends: Sequence[Addend]) -> States:
    """The sum of row-wise functions of states of the same nodes; shared where all states are.

    Each function is evaluated only at the rows where one of its own arguments differs from the wild type.
    """
    states = [s for _, arguments in addends for s in arguments]
    if not all(isinstance(s, SharedStates) for s in states):
        return _dense_sum(addends)
    groups = [[s for s in arguments if isinstance(s, SharedStates)] for _, arguments in addends]
    own = [_union(group) for group in groups]
    origin = _origin(addends, groups)
    kept = None if origin is None else origin.kept.rows(origin)
    indices = [index for index in own if index is not None]
    if not indices:
        num_nodes = len(groups[0][0].x_XH)
        terms = [
            Term(function, [s.at(None) for s in group]) for (function, _), group in zip(addends, groups, strict=True)
        ]
        return SharedStates(sum_terms(terms, Shape(num_nodes, 0), kept), None, origin)
    index = union(indices)
    terms = []
    for (function, _), group, mine in zip(addends, groups, own, strict=True):
        if mine is None:
            mine = RowIndex.none(index)
        whole = len(mine) == len(index)
        place = None if whole else index.table.flatten()[mine.keys].long()
        terms.append(Term(function, [s.at(mine) for s in group], place))
    return SharedStates(sum_terms(terms, Shape(index.num_nodes, len(index), index.nodes), kept), index, origin)


def _origin(addends: Sequence[Addend], groups: Sequence[Sequence[SharedStates]]) -> Origin | None:
    """Of a sum: which functions, told apart by their parameters, of which base rows; None if one is not kept."""
    step: list[Hashable] = []
    origins = [[s.origin for s in group] for group in groups]
    for (function, _), mine in zip(addends, origins, strict=True):
        weights = () if function is None else tuple(id(p) for p in function.module.parameters())
        if None in mine or (function is not None and not weights):
            return None
        name = None if function is None else getattr(function.function, "__qualname__", type(function.function))
        step.append((name, weights, tuple(origin.number for origin in mine if origin is not None)))
    first = origins[0][0]
    return None if first is None else first.kept.origin(*step)


def _dense_sum(addends: Sequence[Addend]) -> States:
    """The sum in all rows; what only changes some is summed there first."""
    listed = [a for a in addends if all(isinstance(s, SharedStates) for s in a[1])]
    if any(function is not None for function, _ in listed):
        rest = [a for a in addends if not any(a is other for other in listed)]
        return _sum_of_every_row([*rest, (None, [sum_updates(listed)])])
    return _sum_of_every_row(addends)


def _sum_of_every_row(addends: Sequence[Addend]) -> States:
    by_strain = _sum_by_strain(addends)
    if by_strain is not None:
        return by_strain
    tensors = [[s.dense() for s in arguments] for _, arguments in addends]
    flat = [x for group in tensors for x in group]
    N, B = len(flat[0]), max(x.shape[1] for x in flat)
    # Rows are taken strain by strain where they lie so.
    by_node = any(x.shape[1] == B and x.is_contiguous() for x in flat)
    spread = torch.arange(N, device=flat[0].device)
    spread = spread.repeat_interleave(B, output_size=N * B) if by_node else spread.repeat(B)

    def rows(x_NBH: Tensor) -> Rows:
        # States that all strains share are not multiplied.
        if x_NBH.shape[1] != B:
            return Rows(x_NBH[:, 0], spread, N)
        return Rows((x_NBH if by_node else x_NBH.transpose(0, 1)).reshape(N * B, -1))

    terms = [Term(function, [rows(x) for x in group]) for (function, _), group in zip(addends, tensors, strict=True)]
    total = sum_terms(terms, Shape(0, N * B))
    return DenseStates(total.view(N, B, -1) if by_node else total.view(B, N, -1).transpose(0, 1))


def _sum_by_strain(addends: Sequence[Addend]) -> States | None:
    """The sum strain by strain, where a product is still to be taken and that is worthwhile."""
    arguments = [s for _, group in addends for s in group]
    messages = [s.pending[0] for s in arguments if s.pending is not None]
    updates = [update for update, _ in addends if update is not None]
    if not messages or any(update.compiled is None or update.random for update in updates):
        return None
    B = messages[0].keep_NB.shape[1]
    tables = {id(s): s for s in (s.pending[1] if s.pending else s for s in arguments)}
    position = {key: i for i, key in enumerate(tables)}

    def source(s: States) -> Source:
        message, sender = s.pending or (None, s)
        return Source(position[id(sender)], message)

    terms = [
        StrainTerm(
            None if update is None else update.compiled,
            [source(s) for s in group],
            [] if update is None else update.parameters,
        )
        for update, group in addends
    ]
    tables_BNH = [s.dense().expand(-1, B, -1).transpose(0, 1) for s in tables.values()]
    if not worthwhile(terms, tables_BNH):
        return None
    return DenseStates(sum_by_strain(terms, tables_BNH).transpose(0, 1))


def _union(states: Sequence[SharedStates]) -> RowIndex | None:
    indices = [s.index for s in states if s.index is not None]
    return union(indices) if indices else None
