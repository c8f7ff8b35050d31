"""Provide the entry point to strains' graphs, ``perturb(graph, batch, strategy)``, and choose how to compute them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from dglcell.errors import ConfigError, GraphError, MissingDependencyError, did_you_mean
from dglcell.graph.resident_graph import ResidentGraph, dgl_runs_on, import_dgl
from dglcell.graph.schema import Relation
from dglcell.perturbation import DGL_STRATEGIES, STRATEGIES, no_edges
from dglcell.perturbation.attribution import Attribution, Received, active
from dglcell.perturbation.dgl_graphs import EdgeMask, EdgeSubgraph, GraphStrategy
from dglcell.perturbation.differences import Difference, NodeMask
from dglcell.perturbation.execution import BasePass, Choices
from dglcell.perturbation.sent import Kept, activities, keep_masks
from dglcell.perturbation.states import DifferenceStates, Score, States
from dglcell.perturbation.targets import Perturbs

LISTING_DEVICES = ("cpu",)


def lists_on(device_type: str) -> bool:
    """Return whether the strategy `difference` lists rows on a device; elsewhere it computes as `node_mask` does."""
    # On a CPU one relation's rows stay in the cache; on a GPU there are fewer launches, and no size is waited for.
    return device_type in LISTING_DEVICES


MOST_SLOTS = 256  # lost nodes by strain that are listed; more than a state has columns do not pay


class PerturbedCell:
    """Represent the graphs of B strains to layers, whichever strategy, the ``engine``, computes on them."""

    def __init__(self, engine: NodeMask | GraphStrategy, kept: dict[str, Kept], graph: ResidentGraph) -> None:
        self.engine, self.kept, self.graph = engine, kept, graph
        if (attribution := active()) is not None:
            attribution.kept |= kept

    @property
    def keep(self) -> dict[str, Tensor]:
        """Return which nodes the strains keep: node type → [N, B] bool."""
        return {node_type: kept.strains_NB for node_type, kept in self.kept.items()}

    def start(self, x_NH: Tensor) -> States:
        """Return states [N, H] that all strains have in common, as before the first aggregation.

        Raises:
            GraphError: they are no rows of nodes, or on another device than the strains.
        """
        device = next(iter(self.kept.values())).strains_NB.device
        if not isinstance(x_NH, Tensor) or x_NH.ndim != 2 or x_NH.device != device or not x_NH.is_floating_point():
            of_tensor = isinstance(x_NH, Tensor) and f"{x_NH.dtype} {tuple(x_NH.shape)} on {x_NH.device}"
            got, do = of_tensor or type(x_NH).__name__, "move or convert them, or `cell.to(device)`"
            what, expected = "the states of nodes do not fit the strains", f"floating-point [N, H] on {device}"
            raise GraphError(what, got=got, expected=expected, do=do)
        return self.engine.start(x_NH)

    def aggregate(self, relation: Relation, states: States | Tensor, reduce: str = "sum") -> States:
        """Compute the sum or mean over the surviving in-edges of every destination node, in every strain.

        An edge survives iff both its ends are kept. Its message is multiplied by the activity of its source, and by its
        fixed weight if it has one; a mean divides by the sum of the activities, which is the number of surviving
        in-edges where nothing is weakened. A node without any, and a lost node, receive zero.

        Args:
            relation: the relation whose edges are followed.
            states: states of the source nodes; rows [N, H] are those that all strains have in common.
            reduce: ``sum`` or ``mean``.

        Raises:
            ConfigError: there is no such reduction.
            GraphError: there is no such relation, or the states are of other nodes.
        """
        states = states if isinstance(states, States) else self.start(states)
        number, strains = self.graph[relation].num_src, self.engine.num_strains
        if (rows := len(states.base_NH)) != number or states.num_strains != strains:
            what, of = f"these are no states of the sources of {relation}", f"one for each node of type '{relation[0]}'"
            got, expected = f"{rows:,} rows, {states.num_strains} strains", f"{number:,}, {of}; {strains} strains"
            raise GraphError(what, got=got, expected=expected)
        if reduce not in ("sum", "mean"):
            raise ConfigError("messages cannot be reduced so", got=reduce, expected="sum or mean")
        found, attribution = self.engine.aggregate(relation, states, reduce), active()
        return found if attribution is None else self._attributed(attribution, relation, states, found, reduce)

    def _attributed(
        self, attribution: Attribution, relation: Relation, states: States, found: States, reduce: str
    ) -> States:
        engine = self.engine
        assert isinstance(engine, NodeMask)
        assert isinstance(found, DifferenceStates)
        delta = found.dense().requires_grad_()
        degrees = engine.degrees(relation, delta.dtype) if reduce == "mean" else None
        kept, edges = self.kept[relation[0]], engine.cell[relation]
        attribution.received.append(Received(relation, edges, kept, states.base_NH, found.base_NH, delta, degrees))
        return found.with_difference(found.base_NH, delta)

    def aggregate_along(self, relations: Sequence[Relation], states: States, reduce: str) -> States:
        """Compute ``aggregate`` along R relations between the same node types at once, for states with ``stacks``.

        The base and the differences of the result begin with a dimension of R.
        """
        assert isinstance(self.engine, NodeMask)
        return self.engine.aggregate_along(relations, states, reduce)

    def attend(self, relation: Relation, keys: States, queries: States, score: Score) -> States:
        """Compute the attention of every destination node to its surviving in-edges, in every strain.

        The softmax is over the surviving edges only, each of which counts by the activity of its source; a node without
        any, and a lost node, receive zero. The keys, states of the sources, are also what is averaged, with the heads
        side by side; the queries are of the destinations. See ``dglcell.perturbation.states.Score`` for the logits.
        """
        if isinstance(self.engine, NodeMask):
            raise no_edges("attention", self.engine.name)
        return self.engine.attend(relation, keys, queries, score)


def check_strategy_device(strategy: str, device_type: str) -> None:
    """Refuse a strategy that needs DGL where DGL is missing or was built without this device."""
    if strategy in DGL_STRATEGIES and not dgl_runs_on(device_type):
        import_dgl()
        what = f"strategy '{strategy}' asked for, but DGL was built without {device_type} support"
        do = "install DGL's CUDA wheel (https://www.dgl.ai/pages/start.html), or take the strategy node_mask"
        raise MissingDependencyError(what, expected=", ".join(s for s in STRATEGIES if s not in DGL_STRATEGIES), do=do)


def perturb(
    graph: ResidentGraph, batch: Perturbs, strategy: str = "node_mask", kernel: str = "auto",
    choices: Choices | None = None, kept_pass: BasePass | None = None,
) -> PerturbedCell:  # fmt: skip
    """Return the graphs of all strains of a batch on the device of the graph; see ``dglcell.perturb``.

    ``choices`` say what ``auto`` stands for, or else the device's defaults. The base of ``difference`` and
    ``node_mask`` is the strain of the batch's ``shared`` nodes; ``kept_pass`` has what earlier batches computed of it.
    """
    if strategy not in (known := ("auto", *STRATEGIES)):
        do = did_you_mean(strategy, known)
        raise ConfigError("unknown strategy", got=strategy, expected=", ".join(known), do=do)
    changes = batch.perturbations
    device_type = changes.device.type
    choices = choices or Choices.default(device_type, of_edges="edge_mask" if changes.edges else None)
    strategy = choices.strategy if strategy == "auto" else strategy
    strategy = strategy if active() is None else "node_mask"
    check_strategy_device(strategy, device_type)
    keep = keep_masks(graph, changes)
    left = {} if changes.deletes_only else activities(graph, changes, keep)
    if strategy in DGL_STRATEGIES:
        kept = {t: Kept(torch.ones_like(mask[:, :1]), mask, activities_NB=left.get(t)) for t, mask in keep.items()}
        # The wild type is in front as strain 0.
        changed = {r: replace(of, strains=of.strains + 1) for r, of in changes.edges.items()}
        engine = (EdgeSubgraph if strategy == "edge_subgraph" else EdgeMask)(graph, kept, changed)
        return PerturbedCell(engine, kept, graph)
    if changes.edges:
        raise no_edges("a strain that changes single edges", strategy)
    whole, base = not changes.shared, {t: torch.ones_like(mask[:, :1]) for t, mask in keep.items()}
    if not whole:
        base = (kept_pass or BasePass({})).once(lambda: keep_masks(graph, changes.of_shared()))
    # Types whose targets say all lost and weakened nodes, which are few in every strain.
    few = {t: x for t, x in changes.nodes.items() if t not in graph.derived and x.most <= MOST_SLOTS}
    slots = {node_type: targets.padded() for node_type, targets in few.items()}
    kept = {t: Kept(base[t], mask, slots.get(t), activities_NB=left.get(t), whole=whole) for t, mask in keep.items()}
    lists = lists_on(device_type)
    engine_class = Difference if lists and strategy == "difference" else NodeMask
    choices = replace(choices, stack=not lists and active() is None)
    return PerturbedCell(engine_class(graph, kept, kernel, choices, kept_pass), kept, graph)
