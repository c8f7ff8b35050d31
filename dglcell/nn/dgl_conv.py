"""Convolve by modules that are written for DGL: those of ``dgl.nn``, and users' own."""

from __future__ import annotations

import copy
import inspect
import itertools
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from dglcell.errors import ConfigError
from dglcell.graph.resident_graph import import_dgl
from dglcell.graph.schema import Relation
from dglcell.nn.config import ConvOptions
from dglcell.nn.convolutions import Convolution
from dglcell.perturbation import no_edges
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.states import States
from dglcell.perturbation.strategies.dgl_graphs import EdgeMask, EdgeRows, EdgeSubgraph

INPUTS = ("in_feats", "in_size", "in_dim", "in_channels", "in_features")
OUTPUTS = ("out_feats", "out_size", "out_dim", "out_channels", "out_features")
"""Arguments of these names are widths, which follow from `model.hidden` where `model.conv_options` does not say
them."""

HEADS = ("num_heads", "heads")
WEIGHTS = "edge_weight"

OPTIONS = "`Config`, which is `model.conv_options` of an experiment"

Weighing = tuple[tuple[float, float], bool]
"""How a module on a whole graph computes what it computes on a reduced one: the powers of degrees that its weights make
up for, and whether one call computes all strains."""

POWERS = ((0.0, 0.0), (1.0, 0.0), (0.5, 0.5), (0.0, 1.0))
"""Modules divide what a node receives by its in-degree and by the out-degrees of its sources to these powers."""

TOLERANCE = 1e-9


@dataclass
class ModuleOptions(ConvOptions):
    """Hold arguments of a module's constructor; those that are None have the constructor's own default."""

    def given(self) -> dict[str, Any]:
        """Return the arguments that have a value."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}


class DglConv(Convolution):
    """Convolve by a module that is called as ``dgl.nn.HeteroGraphConv`` calls it.

    That is ``module(graph, (source rows [N, H], destination rows [M, H]))``, with ``edge_weight=`` [E] if the module's
    ``forward`` has this argument and edges have weights. The result is [M, H], or [M, heads, H / heads].

    Under ``edge_subgraph`` the graph is that of all strains side by side. Under ``edge_mask`` it is the cell graph, and
    weights of zero stand for removed edges. This is right for modules that sum weighted messages and divide by degrees;
    each module is tried on a small graph, and others are refused, as are those that mix nodes, by a ``ConfigError``.
    """

    kind: ClassVar[type[nn.Module]]
    Config = ModuleOptions

    def __init__(self, relation: Relation, width: int, config: ModuleOptions) -> None:
        super().__init__(relation)
        self.width = width
        self.module = self._made(width, config)
        self.takes_weights = takes_weights(self.kind)
        self._found: Weighing | None = None
        self._try()

    @classmethod
    def named(cls) -> str:
        """Return how `model.conv` names the module."""
        module, name = cls.kind.__module__, cls.kind.__qualname__
        return f"dgl.nn.{name}" if module.startswith("dgl.nn") else f"{module}:{name}"

    def apply(self, fn: Any) -> DglConv:
        """Leave the module's own initial weights as they are."""
        return self

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        engine = perturbed.engine
        if isinstance(engine, EdgeSubgraph):
            return engine.convolve(self.relation, source, destination, self._on_subgraphs)
        if isinstance(engine, EdgeMask):
            return engine.convolve(self.relation, source, destination, self._on_masks)
        raise no_edges(f"`{self.named()}`", "node_mask or difference")

    def update(self, x: Tensor, received: Tensor) -> Tensor:
        return received  # the module has seen the nodes' own rows

    def _made(self, width: int, config: ModuleOptions) -> nn.Module:
        known, options = inspect.signature(self.kind).parameters, config.given()
        heads = next((options[name] for name in HEADS if name in options), 1)
        widths = dict.fromkeys(INPUTS, width) | dict.fromkeys(OUTPUTS, width // heads)
        options = {name: of for name, of in widths.items() if name in known} | options
        if "allow_zero_in_degree" in known:  # Lost nodes keep a row without edges.
            options = {"allow_zero_in_degree": True} | options
        try:
            made = self.kind(**options)
        except Exception as error:  # modules refuse arguments in ways of their own
            raise self._error("cannot be made", error, f"set its arguments in {OPTIONS}") from error
        mixing = [type(one).__name__ for one in made.modules() if isinstance(one, _NormBase)]
        if mixing:
            what = f"`{self.named()}` takes statistics over nodes or strains, so that batch mates would change a result"
            raise ConfigError(what, got=mixing[0], expected="norms of single rows, such as LayerNorm")
        return made

    def _error(self, what: str, error: object, do: str) -> ConfigError:
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        form = "module(graph, (source rows, destination rows)) → [nodes, H], as in dgl.nn.HeteroGraphConv"
        return ConfigError(f"`{self.named()}` {what}", got=text, expected=form, do=do)

    def _try(self) -> None:
        edges, *rows = _trial(self.relation, self.width, torch.float32)
        was_training = self.module.training
        try:
            with torch.no_grad():
                shape = tuple(self._call(self.module.eval(), edges, None, *(x[:, 0] for x in rows)).shape)
        except Exception as error:  # any code may run here
            raise self._error("cannot be called", error, "see the guide on DGL") from error
        finally:
            self.module.train(was_training)
        if shape != (edges.graph.num_dst_nodes(), self.width):
            got = f"rows of {shape[1:]}, where the width is {self.width}"
            raise self._error("gives rows of another width", got, f"set its widths in {OPTIONS}")

    def _on_subgraphs(self, edges: EdgeRows, source: Tensor, destination: Tensor) -> Tensor:
        weight_E = edges.weight
        if edges.activity is not None:
            weight_E = edges.dividing_by(self._weighing("a strain that weakens nodes or edges")[0])
        return self._call(self.module, edges, weight_E, source, destination)

    def _on_masks(self, edges: EdgeRows, source_NCH: Tensor, destination_MCH: Tensor) -> Tensor:
        how = self._weighing("the strategy edge_mask")
        return self._masked(self.module, how, edges, source_NCH, destination_MCH)

    def _weighing(self, what: str) -> Weighing:
        """Return how weights of zero can stand for removed edges, which is found out on a small graph, once."""
        if self._found is None and self.takes_weights:
            self._found = self._find()
        if self._found is None:
            takes = "in which it counts" if self.takes_weights else f"which takes no `{WEIGHTS}`"
            what = f"{what} needs a module in which an edge of weight 0 counts for nothing"
            expected = "a module that sums messages multiplied by `edge_weight`, such as dgl.nn.SAGEConv"
            do = "take the strategy edge_subgraph, with deletions only; or gatv2, which weighs attention"
            raise ConfigError(what, got=f"`{self.named()}`, {takes}", expected=expected, do=do)
        return self._found

    def _find(self) -> Weighing | None:
        """Return with which weights the module on a whole graph is equal to the module on its reduced graphs."""
        module = copy.deepcopy(self.module).double().eval()
        generator = torch.Generator().manual_seed(0)
        device = next(module.parameters(), torch.empty(0)).device
        edges, *rows = _trial(self.relation, self.width, torch.float64, device)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
            kept = [left.nonzero().squeeze(1) for left in cast(Tensor, edges.activity).unbind(1)]
            reduced = [import_dgl().edge_subgraph(edges.graph, ids, relabel_nodes=False) for ids in kept]
            columns = [
                self._call(module, EdgeRows(graph, None, None), None, *(x[:, column] for x in rows))
                for column, graph in enumerate(reduced)
            ]
            expected = torch.stack(columns, dim=1)
            for broadcasts, powers in itertools.product((True, False), POWERS):
                try:
                    found = self._masked(module, (powers, broadcasts), edges, *rows)
                except Exception:  # not every module can be called with more dimensions
                    continue
                if found.shape == expected.shape and torch.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE):
                    return powers, broadcasts
        return None

    def _masked(
        self, module: nn.Module, how: Weighing, edges: EdgeRows, source_NCH: Tensor, destination_MCH: Tensor
    ) -> Tensor:
        """Return the results of all columns, [M, C, H]."""
        powers, broadcasts = how
        weight_EC = edges.dividing_by(powers)
        if broadcasts:
            rows = source_NCH.contiguous(), destination_MCH.contiguous()
            found: Tensor = module(edges.graph, rows, **{WEIGHTS: weight_EC.unsqueeze(-1)})
            return found
        columns = zip(weight_EC.unbind(1), source_NCH.unbind(1), destination_MCH.unbind(1), strict=True)
        found_C = [self._call(module, edges, *(x.contiguous() for x in column)) for column in columns]
        return torch.stack(found_C, dim=1)

    def _call(
        self, module: nn.Module, edges: EdgeRows, weight_E: Tensor | None, source: Tensor, destination: Tensor
    ) -> Tensor:
        if weight_E is None and takes_weights(self.kind, always=True):
            weight_E = source.new_ones(edges.graph.num_edges())
        weights = {} if weight_E is None or not self.takes_weights else {WEIGHTS: weight_E}
        found: Tensor = module(edges.graph, (source, destination), **weights)
        return found.flatten(1)


def takes_weights(kind: type[nn.Module], *, always: bool = False) -> bool:
    """Return whether the modules of a class take weights of edges; with ``always``, whether they need them."""
    known = inspect.signature(kind.forward).parameters
    return WEIGHTS in known and (not always or known[WEIGHTS].default is inspect.Parameter.empty)


ENDS = (0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 2), (0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3)
LEFT = (
    (1, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1),  # destination 2 receives nothing
    (1, 1, 1, 0, 1, 1, 1, 0, 1, 0, 1),
)
"""The small graph has edges with these sources and destinations, of which two strains have those marked by 1."""


def _trial(
    relation: Relation, width: int, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> tuple[EdgeRows, Tensor, Tensor]:
    """Return a small graph, with rows of its sources, [N, 2, H], and destinations, [M, 2, H], for two strains."""
    sizes = {relation[0]: 5, relation[2]: 5 if relation[0] == relation[2] else 4}
    graph = import_dgl().heterograph({relation: ENDS}, num_nodes_dict=sizes, device=device)[relation]
    generator = torch.Generator().manual_seed(1)
    rows = {t: torch.randn(n, 2, width, generator=generator, dtype=dtype).to(device) for t, n in sizes.items()}
    activity_E2 = torch.tensor(LEFT, dtype=dtype, device=device).T
    return EdgeRows(graph, None, activity_E2), rows[relation[0]], rows[relation[2]]


@cache
def as_convolution(module: type[nn.Module]) -> type[nn.Module]:
    """Return the class of convolutions that call modules of a class which is written for DGL.

    Other modules are not called with a graph and rows; their class is returned as it is.
    """
    if len(inspect.signature(module.forward).parameters) < len(("self", "graph", "feat")):
        return module
    known = inspect.signature(module).parameters.values()
    named = [one.name for one in known if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    options = make_dataclass("Options", [(name, Any, field(default=None)) for name in named], bases=(ModuleOptions,))
    return type(module.__name__, (DglConv,), {"kind": module, "Config": options, "__module__": __name__})
