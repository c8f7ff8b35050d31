"""Convolve by modules that are written for DGL: those of ``dgl.nn``, and users' own."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from dglcell.errors import ConfigError
from dglcell.graph.resident_graph import import_dgl
from dglcell.graph.schema import Relation
from dglcell.nn.config import ConvOptions
from dglcell.nn.convolutions import Convolution
from dglcell.perturbation import no_edges
from dglcell.perturbation.dgl_graphs import EdgeRows, EdgeSubgraph
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.states import States

INPUTS = ("in_feats", "in_size", "in_dim", "in_channels", "in_features")
OUTPUTS = ("out_feats", "out_size", "out_dim", "out_channels", "out_features")
"""Arguments of these names are widths, which follow from `model.hidden` where `model.conv_options` does not say
them."""

HEADS = ("num_heads", "heads")
WEIGHTS = "edge_weight"

OPTIONS = "`Config`, which is `model.conv_options` of an experiment"


@dataclass
class ModuleOptions(ConvOptions):
    """Hold arguments of a module's constructor; those that are None have the constructor's own default."""

    def given(self) -> dict[str, Any]:
        """Return the arguments that have a value."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}


class DglConv(Convolution):
    """Convolve by a module that is called as ``dgl.nn.HeteroGraphConv`` calls it, on the strains' graphs side by side.

    That is ``module(graph, (source rows [N, H], destination rows [M, H]))``, with ``edge_weight=`` [E] if the module's
    ``forward`` has this argument and edges have weights. The result is [M, H], or [M, heads, H / heads]. Modules that
    mix nodes are refused by a ``ConfigError``, as are strains that weaken nodes or change edges.
    """

    kind: ClassVar[type[nn.Module]]
    Config = ModuleOptions

    def __init__(self, relation: Relation, width: int, config: ModuleOptions) -> None:
        super().__init__(relation)
        known = inspect.signature(self.kind.forward).parameters
        self.takes_weights = WEIGHTS in known
        self.needs_weights = self.takes_weights and known[WEIGHTS].default is inspect.Parameter.empty
        self.module = self._made(width, config)
        self._try(width)

    @classmethod
    def named(cls) -> str:
        """Return how `model.conv` names the module."""
        module, name = cls.kind.__module__, cls.kind.__qualname__
        return f"dgl.nn.{name}" if module.startswith("dgl.nn") else f"{module}:{name}"

    def apply(self, fn: Any) -> DglConv:
        """Leave the module's own initial weights as they are."""
        return self

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        if not isinstance(perturbed.engine, EdgeSubgraph):
            raise no_edges(f"`{self.named()}`", perturbed.engine.name, ("edge_subgraph",))
        return perturbed.engine.convolve(self.relation, source, destination, self._call)

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

    def _try(self, width: int) -> None:
        """Call the module on a small graph, so that one that does not fit is refused before anything runs."""
        sizes = {self.relation[0]: 5, self.relation[2]: 5 if self.relation[0] == self.relation[2] else 4}
        graph = import_dgl().heterograph({self.relation: ((0, 1, 2), (0, 0, 1))}, num_nodes_dict=sizes)[self.relation]
        rows = [torch.ones(sizes[end], width) for end in (self.relation[0], self.relation[2])]
        was_training = self.module.training
        self.module.eval()
        try:
            with torch.no_grad():
                shape = tuple(self._call(EdgeRows(graph, None, None), *rows).shape)
        except Exception as error:  # any code may run here
            raise self._error("cannot be called", error, "see the guide on DGL") from error
        finally:
            self.module.train(was_training)
        if shape != (len(rows[1]), width):
            got = f"rows of {shape[1:]}, where the width is {width}"
            raise self._error("gives rows of another width", got, f"set its widths in {OPTIONS}")

    def _call(self, edges: EdgeRows, source: Tensor, destination: Tensor) -> Tensor:
        if edges.activity is not None:
            do = "leave activities, media and changed edges out, or set `model.conv` to gin, sage or gatv2"
            what = f"`{self.named()}`, a module of DGL, cannot compute strains that weaken nodes or change edges"
            raise ConfigError(what, got="activities of nodes or edges", expected="deletions only", do=do)
        weight_E = edges.weight
        if weight_E is None and self.needs_weights:
            weight_E = source.new_ones(edges.graph.num_edges())
        weights = {} if weight_E is None or not self.takes_weights else {WEIGHTS: weight_E}
        found: Tensor = self.module(edges.graph, (source, destination), **weights)
        return found.flatten(1)


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
