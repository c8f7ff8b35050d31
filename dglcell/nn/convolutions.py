"""Pass messages along one relation: the base class of convolutions, GIN, GraphSAGE, GATv2, and modules of DGL."""

from __future__ import annotations

import copyreg
import inspect
from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dglcell.errors import ConfigError
from dglcell.graph.resident_graph import ResidentGraph, import_dgl
from dglcell.graph.schema import Relation
from dglcell.nn.blocks import mlp
from dglcell.nn.config import ConvOptions, GATv2Options, GINOptions, check_heads
from dglcell.perturbation import no_edges
from dglcell.perturbation.dgl_graphs import EdgeRows, EdgeSubgraph
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.states import States


class Convolution(nn.Module):
    """Convolve over one relation: ``receive`` looks at edges, and ``update`` at rows.

    Source states [N, B, H] and destination states [M, B, H] become new ones, [M, B, H].

    A convolution of your own, `model.conv: MODULE:CLASS`, is made with three arguments: ``relation``, ``width`` (H) and
    ``config``, a ``Config`` with the values of `model.conv_options`.

    Attributes:
        Config: class of the keys of `model.conv_options`.
        reduce: ``sum`` or ``mean``, see ``PerturbedCell.aggregate``; None where ``receive`` returns something else.
        relation: relation whose edges are used; source and destination types may differ.
    """

    Config: ClassVar[type[ConvOptions]] = ConvOptions
    reduce: ClassVar[str | None] = None

    def __init__(self, relation: Relation) -> None:
        super().__init__()
        self.relation = relation

    @classmethod
    def of(cls, relation: Relation, width: int, config: Any, cell: ResidentGraph) -> Self:
        """Make a convolution for a relation of a cell graph, of which some read more."""
        return cls(relation, width, config)  # type: ignore[call-arg]

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        """Return what the destination nodes receive along the surviving edges: sums or means of states (``reduce``)."""
        return perturbed.aggregate(self.relation, source, str(self.reduce))

    @abstractmethod
    def update(self, x: Tensor, received: Tensor) -> Tensor:
        """Return new rows [K, H] from those of the destination nodes and what they receive."""

    def chain(self) -> tuple[str, str] | None:
        """Return the names of a Sequential and of ε, where ``update`` applies the former to received + (1 + ε) x.

        A GPU then computes new rows by one kernel, as far as it knows the modules; None where ``update`` is another.
        """
        return None

    def structure(self) -> Hashable:
        """Return all settings that ``update`` depends on beside weights.

        If a class defines this method itself, a GPU computes those of its convolutions that return the same, and have
        weights of the same shapes, by one of them. Convolutions of other classes are computed one by one.
        """
        return None


class GINConv(Convolution):
    r"""Convolve by GIN (Xu et al. 2019, *How powerful are graph neural networks?*, eq. 4.1).

    .. math:: h'_v = \mathrm{MLP}\Big((1+\epsilon)\,h_v + \sum_{u \to v \text{ survives}} w_{uv}\,h_u\Big)

    Args:
        relation, width: relation whose edges are used, and H of input and output.
        config: options of the MLP (two Linear layers with GELU where None), whose output is H wide for every number of
            layers. With 0 layers there is no MLP and states are only summed, as in He et al. 2020, *LightGCN*.
        weighs: whether the sum has a learned weight, which starts at 1.
    """

    reduce = "sum"

    def __init__(
        self, relation: Relation, width: int, config: GINOptions | None = None, *, weighs: bool = False
    ) -> None:
        super().__init__(relation)
        config = config or GINOptions(hidden=width)
        self.settings = config.activation, config.dropout
        self.epsilon = nn.Parameter(torch.zeros(1))
        self.weight = nn.Parameter(torch.ones(1)) if weighs else None
        widths = [width] + [config.hidden] * (config.layers - 1) + [width]
        self.mlp = mlp(widths, config.activation, config.dropout) if config.layers else nn.Sequential()

    @classmethod
    def of(cls, relation: Relation, width: int, config: GINOptions, cell: ResidentGraph) -> Self:
        return cls(relation, width, config, weighs=relation in cell.weighed)

    def update(self, x: Tensor, received: Tensor) -> Tensor:
        if self.weight is not None:
            received = received * self.weight
        out: Tensor = self.mlp(torch.addcmul(received, x, 1 + self.epsilon))
        return out

    def chain(self) -> tuple[str, str] | None:
        return ("mlp", "epsilon") if self.weight is None else None

    def structure(self) -> Hashable:
        return self.settings


class SAGEConv(Convolution):
    r"""Convolve by GraphSAGE with the mean aggregator (Hamilton et al. 2017).

    .. math:: h'_v = W_1 h_v + W_2 \frac{1}{|\mathcal{N}(v)|}\sum_{u \in \mathcal{N}(v)} w_{uv}\,h_u + b

    where :math:`\mathcal{N}(v)` are the sources of the edges into v that survive in the strain.
    """

    reduce = "mean"

    def __init__(self, relation: Relation, width: int, config: ConvOptions | None = None) -> None:
        super().__init__(relation)
        self.neighbours = nn.Linear(width, width)
        self.itself = nn.Linear(width, width, bias=False)

    def update(self, x: Tensor, received: Tensor) -> Tensor:
        out: Tensor = self.itself(x) + self.neighbours(received)
        return out

    def structure(self) -> Hashable:
        return ()


class GATv2Conv(Convolution):
    r"""Convolve by GATv2, with heads side by side (Brody, Alon & Yahav 2022, *How attentive are graph attention
    networks?*, eq. 7).

    .. math::
        e_{uv} = a^\top \mathrm{LeakyReLU}(W_l h_u + W_r h_v + w_{uv}\,c), \quad
        h'_v = \sum_{u \to v \text{ survives}} \operatorname{softmax}_u(e_{uv})\; W_l h_u + b

    A node attends to itself only where the relation has a self-loop; otherwise its own state gets into the result by
    the residual of the layer.

    Args:
        relation, width: relation whose edges are used, and H of input and output.
        config: options; the number of heads, 4 where None, must divide H.
        weighted: whether the fixed weights w of the relation take part in the score.
    """

    def __init__(
        self, relation: Relation, width: int, config: GATv2Options | None = None, *, weighted: bool = False
    ) -> None:
        super().__init__(relation)
        config = config or GATv2Options()
        heads, self.slope = config.heads, config.slope
        check_heads(width, heads)
        self.keys = nn.Linear(width, width)
        self.queries = nn.Linear(width, width)
        self.vector = nn.Parameter(torch.empty(heads, width // heads))
        self.edge_vector = nn.Parameter(torch.empty(width)) if weighted else None
        self.bias = nn.Parameter(torch.zeros(width))
        nn.init.normal_(self.vector, std=(width // heads) ** -0.5)
        if self.edge_vector is not None:
            nn.init.normal_(self.edge_vector, std=width**-0.5)

    @classmethod
    def of(cls, relation: Relation, width: int, config: GATv2Options, cell: ResidentGraph) -> Self:
        return cls(relation, width, config, weighted=cell[relation].weight is not None)

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        return perturbed.attend(self.relation, source.map(self.keys), destination.map(self.queries), self.score)

    def score(self, keys: Tensor, queries: Tensor, weights: Tensor | None) -> Tensor:
        """Return the logits e of pairs for every head separately, [rows, A]."""
        both = keys + queries
        if self.edge_vector is not None and weights is not None:
            both = both + weights.unsqueeze(-1) * self.edge_vector
        hidden = F.leaky_relu(both, self.slope).unflatten(-1, self.vector.shape)
        return (hidden * self.vector).sum(-1)

    def update(self, x: Tensor, received: Tensor) -> Tensor:
        return received + self.bias  # a node's own state has taken part in the scores

    def structure(self) -> Hashable:
        return self.slope


# Modules that are written for DGL: those of ``dgl.nn``, and users' own.

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
            return self.kind(**options)
        except Exception as error:  # modules refuse arguments in ways of their own
            raise self._error("cannot be made", error, f"set its arguments in {OPTIONS}") from error

    def _error(self, what: str, error: object, do: str) -> ConfigError:
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        form = "module(graph, (source rows, destination rows)) → [nodes, H], as in dgl.nn.HeteroGraphConv"
        return ConfigError(f"`{self.named()}` {what}", got=text, expected=form, do=do)

    def _try(self, width: int) -> None:
        """Call the module on a small graph, so that one that does not fit is refused before anything runs."""
        sizes = {self.relation[0]: 5, self.relation[2]: 5 if self.relation[0] == self.relation[2] else 4}
        graph = import_dgl().heterograph({self.relation: ((0, 1, 2), (0, 0, 1))}, num_nodes_dict=sizes)[self.relation]
        rows = [torch.ones(sizes[end], width) for end in (self.relation[0], self.relation[2])]
        self.module.eval()
        try:
            with torch.no_grad():
                shape = tuple(self._call(EdgeRows(graph, None, None), *rows).shape)
        except Exception as error:  # any code may run here
            raise self._error("cannot be called", error, "see the guide on DGL") from error
        finally:
            self.module.train()
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


def _blank(kind: Any) -> nn.Module:
    return as_convolution(kind).__new__(as_convolution(kind))


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
    made = type(module.__name__, (DglConv,), {"kind": module, "Config": options, "__module__": __name__})
    copyreg.pickle(made, lambda one: (_blank, (module,), one.__dict__))  # which has no name to be found by in a module
    return made
