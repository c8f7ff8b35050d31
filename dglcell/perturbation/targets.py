"""Describe which nodes and edges the strains of a batch change, and how much of them is left: integers only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.checks import AN_ACTIVITY, no_activities
from dglcell.errors import GenotypeError, listing
from dglcell.graph.schema import Relation
from dglcell.graph.vocabulary import Vocabulary

Lists = Sequence[Iterable[Any]]  # one for each strain


@dataclass(frozen=True)
class Targets:
    """Hold the nodes of one type that B strains change, concatenated (CSR), on one device."""

    #: [P] int64 nodes, strain by strain; behind them there may be fillers of −1, so that batches of strains with
    #: different numbers of targets have the same shape. A node that is deleted twice counts as deleted once.
    nodes: Tensor
    offsets: Tensor  #: [B + 1] int64; strain b changes ``nodes[offsets[b]:offsets[b + 1]]``
    #: K, an upper bound of the number of nodes that any strain changes. It is known on the host, so that padded shapes
    #: need no synchronisation with the device.
    most: int
    #: [P] float, what is left of each: 0 where it is deleted, 1 as in the wild type, 0.3 for a knock-down, above 1 for
    #: more of it; a strain then names a node at most once. None where all are deleted, which costs less.
    activities: Tensor | None = None

    @property
    def num_strains(self) -> int:
        """Return the number of strains, B."""
        return len(self.offsets) - 1

    @property
    def strains(self) -> Tensor:
        """Return the strain of every entry of ``nodes``, [P] int64; fillers belong to the last strain."""
        return strains_of(self.offsets, len(self.nodes))

    def padded(self) -> tuple[Tensor, Tensor]:
        """Return nodes [B, K], 0 where there is none, and how much of each is removed, [B, K].

        The latter is bool where strains only delete, else 1 − activity. A node named twice in a strain is removed once.
        """
        nodes_BK, positions_BK, present_BK = self._padded
        if self.activities is None:
            return nodes_BK, present_BK
        left = torch.cat([self.activities, self.activities.new_ones(1)])
        return nodes_BK, (1 - left[positions_BK]) * present_BK

    @cached_property
    @torch.inference_mode(False)
    def _padded(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return nodes, their positions in ``nodes``, and which of them are real, each [B, K]."""
        # Passes with gradients use this too, and they could not save a tensor that was made in inference mode.
        slots = torch.arange(self.most, device=self.nodes.device)
        present_BK = slots < self.offsets.diff().unsqueeze(1)
        # One spare entry keeps the gather in range where nothing is deleted.
        nodes = torch.cat([self.nodes, self.nodes.new_zeros(1)])
        positions = torch.where(present_BK, self.offsets[:-1].unsqueeze(1) + slots, len(self.nodes))
        nodes_BK = nodes[positions]
        earlier_KK = torch.ones(self.most, self.most, dtype=torch.bool, device=nodes.device).tril(-1)
        same_BKK = (nodes_BK.unsqueeze(2) == nodes_BK.unsqueeze(1)) & present_BK.unsqueeze(1)
        return nodes_BK, positions, present_BK & ~(same_BKK & earlier_KK).any(2)

    def part(self, first: int, last: int) -> Self:
        """Return those of the strains from number ``first`` up to ``last``, without it; the host waits for them."""
        begin, end = self.offsets[[first, last]].tolist()
        activities = None if self.activities is None else self.activities[begin:end]
        offsets = self.offsets[first : last + 1] - begin
        return replace(self, nodes=self.nodes[begin:end], offsets=offsets, activities=activities)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """Return the same on ``device``."""
        parts = {one.name: getattr(self, one.name) for one in fields(self)}
        there = {name: x.to(device, non_blocking=non_blocking) for name, x in parts.items() if hasattr(x, "to")}
        return replace(self, **there)


@dataclass(frozen=True, eq=False)
class EdgeChanges:
    """Hold what strains leave of edges of one relation; every (edge, strain) pair occurs at most once.

    A message along an edge of activity s is multiplied by s, beside the activity of its source and the fixed weight of
    the edge; means and softmaxes count it by s. So 0 is no edge: it is left out of degrees, means and softmaxes. Only
    nodes decide which others a strain loses: removing the edge between a gene and its reaction does not remove the
    reaction. Edges at a lost node are removed, whatever is said about them here.
    """

    edges: Tensor  #: [Q] int64 changed edges, by their positions among the resident ones, sorted by destination
    strains: Tensor  #: [Q] int64 strain that changes each of them
    activities: Tensor  #: [Q] float, 0 where an edge is removed; may require gradients

    def put_into(self, activity_EB: Tensor) -> Tensor:
        """Return ``activity_EB``, [E, B], with the activities of changed edges multiplied in."""
        changed = activity_EB[self.edges, self.strains] * self.activities.to(activity_EB.dtype)
        return activity_EB.index_put((self.edges, self.strains), changed)

    def left(self, strain: int, number: int) -> Tensor:
        """Return what a strain leaves of each of ``number`` edges, [E]."""
        mine = self.strains == strain
        return self.activities.new_ones(number).index_put((self.edges[mine],), self.activities[mine])


@dataclass(frozen=True)
class Perturbations:
    """Hold what B strains change of a heterograph."""

    nodes: Mapping[str, Targets]  #: node type → the nodes that strains change; of at least one type
    edges: Mapping[Relation, EdgeChanges] = field(default_factory=dict)  #: relation → edges that strains change
    #: node type → nodes that every strain deletes, where that is known on the host
    shared: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: node type → [B, K] nodes that a `Derivation` has found lost with others before, −1 behind them, so that it is not
    #: asked again
    derived: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def perturbations(self) -> Perturbations:
        """Return these."""
        return self

    @property
    def num_strains(self) -> int:
        """Return the number of strains, B."""
        return next(iter(self.nodes.values())).num_strains

    @property
    def device(self) -> torch.device:
        """Return the device of the targets."""
        return next(iter(self.nodes.values())).nodes.device

    @property
    def deletes_only(self) -> bool:
        """Return whether strains only delete nodes, and weaken none."""
        return all(targets.activities is None for targets in self.nodes.values())

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """Return all that says which nodes strains change."""
        return tuple(x for t in self.nodes.values() for x in (t.nodes, t.offsets, t.activities))

    def of_shared(self) -> Perturbations:
        """Return the one strain that deletes the ``shared`` nodes and no others, on the same device."""
        shared = self.shared or {next(iter(self.nodes)): ()}
        return Perturbations({node_type: only(nodes, self.device) for node_type, nodes in shared.items()})


class Perturbs(Protocol):
    """Define what a batch provides: what its strains change of the graph."""

    @property
    def perturbations(self) -> Perturbations:
        """Return what the strains change."""


def only(nodes: tuple[int, ...], device: torch.device) -> Targets:
    """Return the targets of one strain that deletes some nodes."""
    # Without nodes nothing is copied to a GPU, because the host would wait for the copy.
    listed = torch.tensor(nodes, device=device) if nodes else torch.empty(0, dtype=torch.int64, device=device)
    return Targets(listed, torch.arange(2, device=device) * len(nodes), len(nodes))


def strains_of(offsets: Tensor, number: int) -> Tensor:
    """Return the strain of every entry of concatenated nodes, [number] int64, from offsets [B + 1]; at most B − 1."""
    positions = torch.arange(number, device=offsets.device)
    return torch.searchsorted(offsets[1:-1], positions, right=True)


def read_targets(
    what: str, lists: Lists, size: int, names: Vocabulary | None = None, activities: Lists | Tensor | None = None, *,
    repeats: bool = False,
) -> Targets:  # fmt: skip
    """Look up ids or names of what strains change, of ``size`` such things, and check them.

    ``activities`` are what is left of each, None where all are lost. A ``GenotypeError`` names the strain and calls the
    targets ``what``. With ``repeats`` a strain may name one twice.
    """
    ids = [_ids(what, strain, of, size, names, repeats) for strain, of in enumerate(lists)]
    sizes = [*map(len, ids)]
    left = None if activities is None else _activities(what, activities, sizes)
    nodes = torch.from_numpy(np.concatenate([np.empty(0, np.int64), *ids]))
    return Targets(nodes, torch.tensor([0, *sizes]).cumsum(0), max(sizes, default=0), left)


def _ids(
    what: str, strain: int, targets: Iterable[Any], size: int, names: Vocabulary | None, repeats: bool
) -> NDArray[np.int64]:
    if isinstance(targets, (str, Mapping)) or not isinstance(targets, Iterable):
        what = f"strain {strain}: its {what} are no list"
        raise GenotypeError(what, got=repr(targets), expected="a list of ids or names")
    listed: Any = targets.detach().cpu().numpy() if isinstance(targets, Tensor) else targets
    if not isinstance(listed, np.ndarray):
        listed = [_named(what, strain, x, names) if names and isinstance(x, str) else x for x in listed]
    ids = np.asarray(listed)
    ids = ids.astype(np.int64) if not ids.size else ids
    wrong = ids if ids.dtype.kind not in "iu" else ids[(ids < 0) | (ids >= size)]
    if wrong.size or ids.ndim != 1:
        got, expected = listing(np.ravel(wrong if wrong.size else ids)), f"whole numbers, 0 … {size - 1}"
        what = f"strain {strain}: there are no such {what}"
        raise GenotypeError(what, got=got, expected=expected if size else "none")
    found, times = np.unique(ids, return_counts=True)
    if not repeats and (times > 1).any():
        what, got = f"strain {strain} names {what} twice", listing(found[times > 1])
        raise GenotypeError(what, got=got, expected="each once", do="leave one out")
    return ids.astype(np.int64)


def _named(what: str, strain: int, name: str, names: Vocabulary) -> int:
    found = names.find(name, spelled=False)
    if found not in names:
        what = f"strain {strain}: there are no {what} called '{name}'{names.suggestion(name)}"
        raise GenotypeError(what, expected=f"0 … {len(names) - 1}, or a name, e.g. {names.examples(3)}")
    return names.index(found)


def _activities(what: str, left: Lists | Tensor, sizes: Sequence[int]) -> Tensor:
    if isinstance(left, Tensor):
        values = left if left.is_floating_point() else left.double()
        shape, fits = [*left.shape], [*left.shape] == [sum(sizes)]
    else:
        try:
            lists = [torch.as_tensor(amounts, dtype=torch.float64).reshape(-1) for amounts in left]
        except (TypeError, ValueError) as error:
            what, expected = f"the activities of {what} are no lists of numbers", "a list for each strain, or a tensor"
            raise GenotypeError(what, got=repr(left), expected=expected) from error
        shape, values = [amounts.numel() for amounts in lists], torch.cat(lists or [torch.zeros(0).double()])
        fits = shape == [*sizes]
    if not fits:
        what, got = f"the activities of {what} do not fit what strains change", listing(shape)
        expected = f"for each strain: {listing(sizes)}; or one tensor of {sum(sizes)}"
        raise GenotypeError(what, got=f"numbers of activities: {got}", expected=expected)
    wrong = no_activities(plain := values.detach().cpu().numpy())
    if wrong.any():
        raise GenotypeError(f"an activity of {what} is no amount", got=listing(plain[wrong]), expected=AN_ACTIVITY)
    return values
