"""Hold the node states of every strain as they pass through the layers of a network.

Layers are written against ``States`` only. A strategy is free to keep differences from a base, for all (node, strain)
pairs or for those that differ, or whole states.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from dglcell.kernels.rows import RowIndex, take_rows, union
from dglcell.perturbation.attribution import Attribution, PooledNodes, active, share_secant
from dglcell.perturbation.curves import LARGEST_EXPONENT, share_changes
from dglcell.perturbation.execution import BasePass, Choices, apply_to_rows
from dglcell.perturbation.rules import PerturbedTensor
from dglcell.perturbation.sent import Kept

ROWS_IN_BLOCK = {"cpu": 1 << 14, "cuda": 1 << 22}
"""Rows that are computed together, by device: few enough to stay in a CPU's cache, enough for calls to cost little;
on a GPU as many as memory allows, so that the number of launches depends on no size."""

Score = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""A score gives the logits of edges, [rows, A] for A heads, from the keys and queries of their ends, [rows, H] each,
and from the fixed weights of the edges, [rows], where the relation has them. The keys are what is averaged."""

Addend = tuple[Callable[..., Tensor] | None, Sequence["States"]]  # a function of rows, None for one state as it is


class Pooled(NamedTuple):
    """Hold a weighted mean over the kept nodes."""

    base_1H: Tensor  #: [1, H] mean of the base
    difference_BH: Tensor  #: [B, H] by how much the strains' means differ from it


class States(ABC):
    """Hold states of the N nodes of one type in B strains, H wide: a base, and each difference from it.

    >>> import dglcell, torch
    >>> cell = dglcell.CellGraph({("user", "likes", "item"): (["ann", "bob"], ["tea", "salt"])})
    >>> states = dglcell.perturb(cell, {"user": [["ann"], []]}).start(torch.ones(2, 8))
    >>> states.map(torch.nn.functional.relu).whole().shape  # users, strains, columns
    torch.Size([2, 2, 8])
    """

    share = 1.0  #: of (node, strain) pairs whose states are kept: all, unless those that differ are listed
    stacks = False  #: whether relations are computed together
    num_strains: int  #: B

    @property
    @abstractmethod
    def base_NH(self) -> Tensor:
        """Return the states of the base, [N, H]; the base is the wild type unless the strains share deletions."""

    @abstractmethod
    def whole(self) -> Tensor:
        """Return the strains' states themselves, [N, B, H]."""

    @abstractmethod
    def dense(self) -> Tensor:
        """Return by how much the strains' states differ from the base, [N, B, H]."""

    def rows(self, nodes: Tensor, strains: Tensor) -> Tensor:
        """Return the states of (node, strain) pairs, whose indices are of any one shape; ``H`` is the last axis."""
        return self.whole()[nodes, strains]

    @abstractmethod
    def pool(self, gate: States, kept: Kept) -> Pooled:
        """Return the softmax-weighted mean over the kept nodes, of the base and of every strain.

        ``gate`` has logits of the same nodes, one wide. A node of activity s weighs s times as much, and a strain that
        keeps no node pools to zero.
        """

    @abstractmethod
    def sum(self, addends: Sequence[Addend]) -> States:
        """Return the sum of functions of rows, for states of the same nodes as these.

        Each function gets one argument per state, tensors [rows, H] or ``PerturbedTensor``, and gives rows; row k of
        its result may depend on row k of its arguments alone.
        """

    def map(self, function: Callable[[Tensor], Tensor]) -> States:
        """Apply a function of rows (Linear, norm, activation, any composition): [..., H] → [..., H']."""
        return self.sum([(function, [self])])

    @staticmethod
    def combine(function: Callable[..., Tensor], states: Sequence[States]) -> States:
        """Apply a function of the rows of several states of the same nodes."""
        return states[0].sum([(function, states)])


@dataclass(frozen=True, eq=False)
class WholeStates(States):
    """Keep every row of the wild type and of every strain; this is simple, but rounding hides small differences."""

    x_NCH: Tensor  #: [N, 1 + B, H], the wild type first; or [N, 1, H] where no strain differs
    num_strains: int  #: B

    @property
    def base_NH(self) -> Tensor:
        return self.x_NCH[:, 0]

    @property
    def columns(self) -> Tensor:
        """Return one column for the wild type and for each strain, [N, 1 + B, H]."""
        return self.x_NCH.expand(-1, 1 + self.num_strains, -1)

    @property
    def graph_rows(self) -> Tensor:
        """Return the rows of a graph that has all columns side by side, [(1 + B) · N, H]: node n of c is c · N + n."""
        return self.columns.transpose(0, 1).flatten(0, 1)

    def whole(self) -> Tensor:
        return self.columns[:, 1:]

    def dense(self) -> Tensor:
        return self.whole() - self.base_NH.unsqueeze(1)

    def pool(self, gate: States, kept: Kept) -> Pooled:
        assert isinstance(gate, WholeStates)
        kept.check((len(self.x_NCH), self.num_strains))
        keep_NC = torch.cat([kept.base_N1, kept.strains_NB], dim=1)
        logits_NC = gate.columns.squeeze(-1)
        if kept.log_activities is not None:
            logits_NC = logits_NC + F.pad(kept.log_activities, (1, 0)).to(logits_NC.dtype)
        logits_NC = logits_NC.masked_fill(~keep_NC, torch.finfo(gate.x_NCH.dtype).min)
        share_NC = torch.softmax(logits_NC, dim=0) * keep_NC
        pooled_CH = torch.einsum("nc,nch->ch", share_NC, self.columns)
        return Pooled(pooled_CH[:1], pooled_CH[1:] - pooled_CH[:1])

    def sum(self, addends: Sequence[Addend]) -> States:
        states = [state for _, arguments in addends for state in arguments]
        shared = all(isinstance(state, WholeStates) and state.x_NCH.shape[1] == 1 for state in states)
        total: Tensor | None = None
        for function, arguments in addends:
            x = [state.x_NCH if shared else state.columns for state in arguments if isinstance(state, WholeStates)]
            rows = [t.flatten(0, 1) for t in x]
            part = rows[0] if function is None else function(*rows)
            total = part if total is None else total + part
        assert total is not None
        return WholeStates(total.unflatten(0, (-1, 1 if shared else 1 + self.num_strains)), self.num_strains)


class DifferenceStates(States):
    """Keep a base, and differences from it: for all pairs, for listed pairs, or none at all.

    Args:
        base_NH: [N, H] states of the base; [R, N, H] for R relations that are computed together.
        delta: [N, B, H] differences; [K, H] for the pairs of ``index``; None where no strain differs; or [R, N, B, H].
        index: the listed pairs; None where ``delta`` has all.
        kept_pass: the base's tensors of earlier batches, in evaluation.
    """

    def __init__(
        self, base_NH: Tensor, delta: Tensor | None, index: RowIndex | None, num_strains: int, choices: Choices,
        kept_pass: BasePass | None = None,
    ) -> None:  # fmt: skip
        if index is not None and len(index) == 0:
            delta, index = None, None
        self._base_NH, self.delta, self.index, self.num_strains = base_NH, delta, index, num_strains
        self.choices, self.kept_pass, self.stacks = choices, kept_pass, choices.stack
        self.share = 0.0 if delta is None else 1.0 if index is None else len(index) / (len(base_NH) * num_strains)

    @property
    def base_NH(self) -> Tensor:
        return self._base_NH

    @property
    def delta_dtype(self) -> torch.dtype:
        """Return the type of differences."""
        return torch.bfloat16 if self.choices.half else self.base_NH.dtype

    def with_difference(self, base_NH: Tensor, delta: Tensor | None, index: RowIndex | None = None) -> DifferenceStates:
        """Return other states of the same strains."""
        return DifferenceStates(base_NH, delta, index, self.num_strains, self.choices, self.kept_pass)

    def dense(self) -> Tensor:
        N, B = len(self.base_NH), self.num_strains
        if self.delta is None:
            return self.base_NH.new_zeros(N, B, self.base_NH.shape[1], dtype=self.delta_dtype)
        if self.index is None:
            return self.delta
        rows = self.delta.new_zeros(N * B, self.delta.shape[1]).index_copy(0, self.index.keys, self.delta)
        return rows.unflatten(0, (N, B))

    def at(self, index: RowIndex) -> Tensor:
        """Return the differences of chosen pairs, [K, H], zero where nothing is listed."""
        if self.delta is None:
            return self.base_NH.new_zeros(len(index), self.base_NH.shape[1], dtype=self.delta_dtype)
        if self.index is index:
            return self.delta
        if self.index is None:
            return take_rows(self.delta.flatten(0, 1), index.keys)
        positions = self.index.positions(index)
        return take_rows(self.delta, positions.clamp(min=0)) * (positions >= 0).unsqueeze(1)

    def whole(self) -> Tensor:
        return self.base_NH.unsqueeze(1) + self.dense()

    def rows(self, nodes: Tensor, strains: Tensor) -> Tensor:
        base = self.base_NH[nodes]
        if self.delta is None or self.index is None:
            return base if self.delta is None else base + self.delta[nodes, strains]
        positions = self.index.table[nodes, strains].long()
        return base + self.delta[positions.clamp(min=0)] * (positions >= 0).unsqueeze(-1)

    def sum(self, addends: Sequence[Addend]) -> States:
        """See ``States.sum``: each function is computed only for the pairs in which one of its arguments differs."""
        states = _distinct(addends)
        known = None if self.kept_pass is None else self.kept_pass.once(lambda: _sum_of_bases(addends))
        if all(state.delta is None for state in states):
            return self.with_difference(_sum_of_bases(addends) if known is None else known, None)
        if any(state.delta is not None and state.index is None for state in states):
            base_NH, delta = self._sum_dense(addends, states)
            return self.with_difference(base_NH if known is None else known, delta)
        parts = [self._listed(addend, known is None) for addend in addends]
        index = union([part.index for part in parts if part.index is not None])
        deltas = [part.at(index) for part in parts if part.delta is not None]
        if known is None:
            known = _sum_up([part.base_NH for part in parts])
        return self.with_difference(known, _sum_up(deltas), index)

    def _sum_dense(self, addends: Sequence[Addend], states: Sequence[DifferenceStates]) -> tuple[Tensor, Tensor]:
        body = _Body(addends, states, self.choices.compiled)
        deltas = [None if state.delta is None else state.dense().flatten(-3, -2) for state in states]
        B = self.num_strains
        nodes = max(1, rows_in_block(self.base_NH.device) // B)
        blocks = _blocks([s.base_NH for s in states], nodes, deltas, nodes * B)
        outs = [self._call(body, B, base, delta) for base, delta in blocks]
        return _joined([base for base, _ in outs]), _joined([delta for _, delta in outs]).unflatten(0, (-1, B))

    def _listed(self, addend: Addend, with_base: bool) -> DifferenceStates:
        """Compute one addend where its arguments differ; without its base, only the base's rows of these nodes."""
        states = _distinct([addend])
        if addend[0] is None:
            return states[0]
        indices = [state.index for state in states if state.index is not None]
        if not indices:
            return self.with_difference(_sum_of_bases([addend]) if with_base else states[0].base_NH, None)
        index = union(indices)
        body, bases = _Body([addend], states, self.choices.compiled), [state.base_NH for state in states]
        deltas = [None if state.delta is None else state.at(index) for state in states]
        local, starts = index.nodes, index.starts[:-1]
        if not with_base:
            nodes = index.mask_NB.any(1).nonzero().squeeze(1)
            local, starts = torch.searchsorted(nodes, local), starts[nodes]
            bases = [base.index_select(0, nodes) for base in bases]
        outs = list(self._listed_blocks(body, bases, deltas, local, starts, len(index)))
        base_NH = _joined([base for base, _ in outs])
        return self.with_difference(base_NH, _joined([delta for _, delta in outs]), index)

    def _listed_blocks(
        self, body: _Body, bases: Sequence[Tensor], deltas: Sequence[Tensor | None], local: Tensor, starts: Tensor,
        number: int,
    ) -> Iterator[tuple[Tensor, Tensor]]:  # fmt: skip
        n = len(starts)
        cuts = torch.arange(0, number + n, rows_in_block(starts.device))
        first = sorted({*torch.searchsorted(starts + torch.arange(n), cuts).tolist(), 0} - {n})
        nodes, pairs = [*first, n], [*starts[first].tolist(), number]
        node_sizes, pair_sizes = ([b - a for a, b in pairwise(ends)] for ends in (nodes, pairs))
        blocks = _blocks(bases, node_sizes, deltas, pair_sizes)
        for node, rows, (base, delta) in zip(nodes, local.split(pair_sizes), blocks, strict=False):
            yield self._call(body, rows - node, base, delta)

    def _call(
        self, body: _Body, rows: int | Tensor, bases: Sequence[Tensor], deltas: Sequence[Tensor | None]
    ) -> tuple[Tensor, Tensor]:
        if self.choices.recompute and torch.is_grad_enabled() and active() is None:
            out: tuple[Tensor, Tensor] = checkpoint(body, rows, bases, deltas, use_reentrant=False)
            return out
        return body(rows, bases, deltas)

    def pool(self, gate: States, kept: Kept) -> Pooled:
        """See ``States.pool``: shares change as a whole, but only pairs that differ change what is summed otherwise."""
        assert isinstance(gate, DifferenceStates)
        kept.check((len(self.base_NH), self.num_strains))
        attribution = active()
        # Where relations are computed together, on a GPU, the host would wait for lists.
        listed = not self.stacks and all(of.delta is None or of.index is not None for of in (self, gate))
        if listed and attribution is None and (found := self._pool_listed(gate, kept)) is not None:
            return found
        p_N1, change_NB = pooling_shares(gate.base_NH, kept, gate.dense().squeeze(-1))
        base_1H = p_N1.T @ self.base_NH
        # Shares sum to one in the base and in strains, so the mean may be subtracted: small sums keep their digits.
        pooled_BH = change_NB.T @ (self.base_NH - base_1H)
        share_NB = p_N1 + change_NB
        if attribution is not None:
            pooled_BH = _by_node(attribution, kept, self.base_NH - base_1H, self.dense(), p_N1, change_NB)
        elif self.delta is not None and self.index is not None:
            share_K1 = take_rows(share_NB.flatten().unsqueeze(1), self.index.keys)
            pooled_BH = pooled_BH.index_add(0, self.index.strains, (share_K1 * self.delta).to(pooled_BH.dtype))
        elif self.delta is not None:
            pooled_BH = pooled_BH + (share_NB.unsqueeze(2) * self.dense()).sum(0)
        return Pooled(base_1H, torch.where(kept.strains_NB.any(0).unsqueeze(1), pooled_BH, -base_1H))

    def _pool_listed(self, gate: DifferenceStates, kept: Kept) -> Pooled | None:
        """Pool by the pairs that differ alone; None where most shares move, or where logits rise far."""
        # Logits change by d and states by δ, m = e^d − 1: Σ p (m (b − mean) + (1 + m) δ) / (1 + Σ p m), 0 elsewhere.
        index = union([kept.changed, *(state.index for state in (self, gate) if state.index is not None)])
        p_N = base_shares(gate.base_NH, kept).squeeze(1)
        logit_K = gate.at(index).squeeze(1).to(p_N.dtype)
        if kept.log_activities is not None:
            logit_K = logit_K + kept.log_activities.flatten().index_select(0, index.keys).to(p_N.dtype)
        logit_K = logit_K.masked_fill(~kept.strains_NB.flatten()[index.keys], -torch.inf)
        p_K = take_rows(p_N, index.nodes)
        moved_K = p_K * torch.expm1(logit_K)
        change_B = p_N.new_zeros(self.num_strains).index_add(0, index.strains, moved_K)
        if (change_B < -0.5).any() or (logit_K > LARGEST_EXPONENT).any():
            return None
        base_1H = (p_N @ self.base_NH).unsqueeze(0)
        rows_KH = moved_K.unsqueeze(1) * take_rows(self.base_NH - base_1H, index.nodes)
        if self.delta is not None:
            rows_KH = torch.addcmul(rows_KH, (p_K + moved_K).unsqueeze(1), self.at(index).to(p_N.dtype))
        sums_BH = p_N.new_zeros(self.num_strains, rows_KH.shape[1]).index_add(0, index.strains, rows_KH)
        return Pooled(base_1H, sums_BH / (1 + change_B).unsqueeze(1))


def _by_node(
    attribution: Attribution, kept: Kept, centred_NH: Tensor, delta_NBH: Tensor, p_N1: Tensor, change_NB: Tensor
) -> Tensor:
    """Return by how much pooled states differ, node by node; half of shares times states belongs to either."""
    change_NB1 = change_NB.unsqueeze(2)
    delta_NBH = delta_NBH * kept.strains_NB.unsqueeze(2)  # the state of a lost node is read by nothing
    of_shares_NBH = change_NB1 * (centred_NH.unsqueeze(1) + delta_NBH.detach() / 2)
    shares_NBH = of_shares_NBH + (p_N1.unsqueeze(2) + change_NB1.detach() / 2) * delta_NBH
    pooled_BH = shares_NBH.sum(0)
    attribution.pooled.append(PooledNodes(kept, shares_NBH.detach(), pooled_BH))
    return pooled_BH


def stacked(states: Sequence[DifferenceStates]) -> DifferenceStates:
    """Stack dense states of the same nodes along R relations, as [R, …]."""
    bases, deltas = [x.base_NH for x in states], [x.dense() for x in states]
    return states[0].with_difference(torch.stack(bases), torch.stack(deltas))


def base_shares(logits_N1: Tensor, kept: Kept) -> Tensor:
    """Return the base's softmax over the nodes that it keeps, [N, 1]."""
    floor = torch.finfo(logits_N1.dtype).min
    # Along the last dimension, because a GPU has one program for each column otherwise.
    return torch.softmax(logits_N1.masked_fill(~kept.base_N1, floor).flatten(), 0).unsqueeze(1) * kept.base_N1


def pooling_shares(logits_N1: Tensor, kept: Kept, delta_NB: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return ``base_shares``, and how much the strains' shares differ, [N, B].

    Lost nodes have no share, and that of weakened ones is reduced. ``delta_NB`` is None where no logit differs.
    """
    p_N1 = base_shares(logits_N1, kept)
    delta = logits_N1.new_zeros(1, 1) if delta_NB is None else delta_NB.to(p_N1.dtype)
    if kept.log_activities is not None:
        delta = delta + kept.log_activities.to(p_N1.dtype)
    change_NB = share_changes(p_N1, logits_N1, delta, -2, kept.strains_NB)
    attribution = active()
    if attribution is not None:
        gone_NB = attribution.leave(kept, p_N1.dtype)
        logits_NB = torch.zeros_like(change_NB) if delta_NB is None else delta_NB
        change_NB = share_secant(change_NB, p_N1, logits_NB, -2, 1 - gone_NB.detach(), gone_NB)
    return p_N1, change_NB


def rows_in_block(device: torch.device) -> int:
    """Return how many rows are computed together on a device; a device other than CPU and CUDA counts as a GPU."""
    return ROWS_IN_BLOCK["cpu" if device.type == "cpu" else "cuda"]


class _Body:
    def __init__(self, addends: Sequence[Addend], states: Sequence[DifferenceStates], compiled: bool) -> None:
        position = {id(state): i for i, state in enumerate(states)}
        self.steps = [(function, [position[id(state)] for state in arguments]) for function, arguments in addends]
        self.compiled = compiled

    def __call__(
        self, rows: int | Tensor, bases: Sequence[Tensor], deltas: Sequence[Tensor | None]
    ) -> tuple[Tensor, Tensor]:
        total: PerturbedTensor | None = None
        for function, mine in self.steps:
            base, delta = bases[mine[0]], deltas[mine[0]]
            if function is not None:
                given = [bases[i] for i in mine], [deltas[i] for i in mine]
                base, delta = apply_to_rows(function, rows, *given, self.compiled)
            part = PerturbedTensor(base, delta, rows)
            total = part if total is None else total + part
        assert total is not None
        delta = next(d for d in deltas if d is not None)
        return total.base, delta.new_zeros(len(delta), *total.base.shape[1:]) if total.delta is None else total.delta


def _distinct(addends: Sequence[Addend]) -> list[DifferenceStates]:
    states = {id(state): state for _, arguments in addends for state in arguments}
    return [state for state in states.values() if isinstance(state, DifferenceStates)]


def _sum_of_bases(addends: Sequence[Addend]) -> Tensor:
    rows = [[state.base_NH for state in arguments] for _, arguments in addends]
    return _sum_up([x[0] if function is None else function(*x) for (function, _), x in zip(addends, rows, strict=True)])


def _sum_up(tensors: Sequence[Tensor]) -> Tensor:
    return sum(tensors[1:], tensors[0])


def _joined(blocks: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(blocks)) if len(blocks) > 1 else blocks[0]


def _blocks(
    bases: Sequence[Tensor], base_sizes: int | list[int], deltas: Sequence[Tensor | None], delta_sizes: int | list[int]
) -> Iterator[tuple[tuple[Tensor, ...], list[Tensor | None]]]:
    parts = [None if delta is None else _split(delta, delta_sizes) for delta in deltas]
    for i, block in enumerate(zip(*(_split(base, base_sizes) for base in bases), strict=True)):
        yield block, [None if part is None else part[i] for part in parts]


def _split(rows: Tensor, sizes: int | list[int]) -> tuple[Tensor, ...]:
    """Split rows into blocks; a single block is returned as it is, because the gradient of a part is a copy."""
    if isinstance(sizes, int) and rows.shape[-2] <= sizes:
        return (rows,)
    blocks: tuple[Tensor, ...] = rows.split(sizes, -2)
    return blocks
