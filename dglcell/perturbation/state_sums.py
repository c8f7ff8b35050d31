"""Row-wise functions of node states, and sums of them: the wild type's rows once, where strains differ a row each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from dglcell.perturbation.kept_base import Origin
from dglcell.perturbation.row_blocks import Shape
from dglcell.perturbation.row_index import RowIndex, union
from dglcell.perturbation.row_wise import Rows, RowWise, Term, sum_terms
from dglcell.perturbation.states import DenseStates, SharedStates, States
from dglcell.perturbation.strain_sums import Source, StrainTerm, sum_by_strain, worthwhile

Addend = tuple[RowWise | None, Sequence[States]]
"""A row-wise function and its arguments; None for one argument as it is."""


def map_states(function: RowWise | Callable[[Tensor], Tensor], states: States) -> States:
    """Apply a row-wise function (linear, norm, activation): [..., H] → [..., H']."""
    return combine_states(function, [states])


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
