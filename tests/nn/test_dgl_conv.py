"""Modules that are written for DGL: on the strains' graphs they compute what they do on physically reduced ones."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import dglcell
from dglcell.errors import ConfigError
from dglcell.graph.schema import CATALYSES, Relation
from dglcell.models.config import HeteroCellConfig
from dglcell.models.model import make_model
from dglcell.nn.convolutions import DglConv, as_convolution
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import perturb
from dglcell.perturbation.states import WholeStates
from tests.examples import examples
from tests.random_cells import RandomCell, agree, genotypes_of, gradients, random_cells, randomise, textbook_cell

dgl = pytest.importorskip("dgl", exc_type=ImportError)

WIDTH = 4


class Gate(nn.Module):
    """Weighted sums, gated by the node's own row, where weights must be given: what a user may write."""

    def __init__(self, in_feats: int, out_feats: int) -> None:
        super().__init__()
        self.message, self.gate = nn.Linear(in_feats, out_feats), nn.Linear(in_feats, out_feats)

    def forward(self, graph: Any, feat: tuple[Tensor, Tensor], edge_weight: Tensor) -> Tensor:
        received: Tensor = dgl.ops.u_mul_e_sum(graph, self.message(feat[0]), edge_weight)
        return self.gate(feat[1]).sigmoid() * received


class Normed(nn.Module):
    """Statistics over nodes."""

    def __init__(self, in_feats: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(in_feats)

    def forward(self, graph: Any, feat: tuple[Tensor, Tensor]) -> Tensor:
        return self.norm(dgl.ops.copy_u_sum(graph, feat[0]))


class Own(as_convolution(Gate)):  # type: ignore[misc]
    """A class that a module has, where pickle finds it."""


MODULES: dict[str, tuple[type[nn.Module], dict[str, Any]]] = {
    "sage": (dgl.nn.SAGEConv, {"aggregator_type": "mean"}),
    "graph_both": (dgl.nn.GraphConv, {}),
    "gin": (dgl.nn.GINConv, {}),
    "gate": (Gate, {}),
    "gatv2": (dgl.nn.GATv2Conv, {"num_heads": 2}),
}


def made(name: str, relation: Relation) -> DglConv:
    kind, options = MODULES[name]
    conv = as_convolution(kind)
    assert issubclass(conv, DglConv)
    return pickle.loads(pickle.dumps(randomise(conv(relation, WIDTH, conv.Config(**options)).double())))


@pytest.mark.parametrize("name", MODULES)
@examples(3)
@given(data=st.data(), cell=random_cells())
def test_modules_equal_the_physically_reduced_graphs(name: str, data: Any, cell: RandomCell) -> None:
    """Rows of the kept nodes of every strain, and gradients; a reaction is lost with any of its genes."""
    strains = [[*dict.fromkeys(strain)] for strain in data.draw(genotypes_of(cell))]
    ends = {r: (torch.as_tensor(u), torch.as_tensor(v)) for r, (u, v) in cell.edges.items()}
    graph = dgl.heterograph(ends, num_nodes_dict=cell.sizes)
    for relation, weight in cell.weights.items():
        graph.edges[relation].data["weight"] = torch.as_tensor(weight)
    whole = dglcell.CellGraph(graph, derive=[CATALYSES])
    reduced = dglcell.graphs(whole, {"gene": strains})
    perturbed = dglcell.perturb(whole, {"gene": strains}, strategy="edge_subgraph")
    torch.manual_seed(0)
    for relation in cell.edges:
        conv, same, pairs = made(name, relation), relation[0] == relation[2], []
        sizes = cell.sizes[relation[0]], cell.sizes[relation[2]]
        x, y = (torch.randn(n, 1 + len(strains), WIDTH, dtype=torch.float64, requires_grad=True) for n in sizes)
        y = x if same else y
        rows = conv.receive(perturbed, *(WholeStates(one, len(strains)) for one in (x, y))).whole()
        for b, strain in enumerate(reduced):
            alone, (sources, kept) = strain[relation], (strain.nodes[t].data[dgl.NID] for t in relation[::2])
            source = x[sources, 1 + b]
            given = {"edge_weight": alone.edata["weight"]} if conv.takes_weights and relation in cell.weights else {}
            if isinstance(conv.module, Gate):
                given = given or {"edge_weight": source.new_ones(alone.num_edges())}
            if alone.num_edges():
                expected = conv.module(alone, (source, source if same else y[kept, 1 + b]), **given)
                pairs.append((rows[kept, b], expected.flatten(1)))
        if pairs:
            found, wanted = (torch.cat(side) for side in zip(*pairs, strict=True))
            leaves = [x, y, *conv.parameters()]
            agree([found, *gradients(found, leaves)], [wanted, *gradients(wanted, leaves)], f"{relation}")


def test_a_subclass_is_copied_as_one() -> None:
    assert type(pickle.loads(pickle.dumps(Own(CATALYSES, WIDTH, Own.Config())))) is Own


@pytest.mark.parametrize(
    ("name", "strain", "strategy", "message"),
    [
        ("gatv2", {0: 0.5}, "edge_subgraph", r"`dgl.nn.GATv2Conv`, a module of DGL, cannot compute strains that wea"),
        *(
            (
                "graph_both",
                [0],
                strategy,
                rf"(?s)`dgl.nn.GraphConv` needs another .*got: +{strategy}\n.*auto, edge_subgraph\n",
            )
            for strategy in ("edge_mask", "node_mask", "difference")
        ),
    ],
)
def test_what_a_module_cannot_compute_is_refused(name: str, strain: Any, strategy: str, message: str) -> None:
    cell = textbook_cell("isoenzyme")
    relation = next(r for r in cell.relations if r[0] == r[2] == "gene")
    perturbed = perturb(cell, GenotypeBatch.from_lists([strain]), strategy)
    x = perturbed.start(torch.ones(cell.num_nodes["gene"], WIDTH, dtype=torch.float64))
    with pytest.raises(ConfigError, match=message):
        made(name, relation).receive(perturbed, x, x)
    if name == "graph_both":
        with pytest.raises(ConfigError, match=r"`model.conv: dgl.nn.GraphConv` needs another strategy"):
            HeteroCellConfig(conv="dgl.nn.GraphConv", strategy=strategy).validate()


def config(**keys: Any) -> HeteroCellConfig:
    made = HeteroCellConfig(hidden=WIDTH, layers=2, local_heads=2, **keys)
    made.validate()
    return made


def test_auto_takes_the_strategy_that_runs_every_module() -> None:
    cell = textbook_cell("isoenzyme")
    model = make_model(config(conv="dgl.nn.GATv2Conv", conv_options={"num_heads": 2}), cell, outputs=1)
    model.choose_for_run("cpu", 10)
    assert model.choices.strategy == "edge_subgraph"
    assert torch.isfinite(model(GenotypeBatch.from_lists([[0], [1, 2]])).phenotypes).all()


def test_a_heterograph_convolution_runs_unchanged_on_the_strains_graph() -> None:
    cell, strains = textbook_cell("isoenzyme").double(), [[0, 1], [2], []]
    torch.manual_seed(0)
    module = dgl.nn.HeteroGraphConv(
        {r[1]: dgl.nn.GATv2Conv(WIDTH, WIDTH, 1, allow_zero_in_degree=True) for r in cell.relations}, aggregate="sum"
    ).double()
    x = {t: torch.randn(n, WIDTH, dtype=torch.float64) for t, n in cell.num_nodes.items()}
    perturbed = perturb(cell, GenotypeBatch.from_lists(strains), "edge_subgraph")
    states = {t: perturbed.start(rows) for t, rows in x.items()}
    engine = perturbed.engine
    found = module(engine.batched, {t: one.graph_rows for t, one in states.items()})
    for c, graph in enumerate(engine.graphs):
        reduced = module(graph, x)
        for node_type, rows in reduced.items():
            N = cell.num_nodes[node_type]
            torch.testing.assert_close(found[node_type][c * N : (c + 1) * N], rows, atol=1e-10, rtol=1e-10)
    assert engine.batched.batch_size == 1 + len(strains)


def test_graphs_are_made_once_a_batch_and_the_cell_graph_once_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(name: str) -> None:
        original = getattr(dgl, name)
        monkeypatch.setattr(dgl, name, lambda *args, **keys: calls.append(name) or original(*args, **keys))

    batch = GenotypeBatch.from_lists([[0], [1, 2]])
    for strategy, expected in (("edge_subgraph", ["edge_subgraph"] * 3 + ["batch"]), ("edge_mask", [])):
        model = make_model(config(conv="sage", strategy=strategy), textbook_cell("isoenzyme"), outputs=1)
        model(batch)
        with monkeypatch.context():
            for name in ("heterograph", "edge_subgraph", "batch"):
                counted(name)
            model(batch)
        assert calls == expected, strategy
        calls.clear()
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("conv", "options", "message"),
    [
        ("dgl.nn.GATv2Konv", None, r"module 'dgl.nn' has no 'GATv2Konv'.*did you mean GATv2Conv"),
        ("dgl.nn.GATv2Conv", {"heads": 2}, r"unknown key `model.conv_options.heads`.*did you mean .*num_heads"),
        ("dgl.nn.GATv2Conv", None, r"`dgl.nn.GATv2Conv` cannot be made\n.*num_heads.*conv_options"),
        (
            "dgl.nn.GATv2Conv",
            {"num_heads": 3},
            r"gives rows of another width\n  got:      rows of \(3,\), where .* is 4",
        ),
        (
            "dgl.nn.GATv2Conv",
            {"num_heads": 1, "activation": "relu"},
            r"cannot be called\n.*'str' object is not callable",
        ),
        ("dgl.nn.TAGConv", None, r"cannot be called"),
        (f"{__name__}:Normed", None, r"takes statistics over nodes or strains.*BatchNorm1d"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_runs(conv: str, options: dict[str, Any] | None, message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        make_model(config(conv=conv, conv_options=options), textbook_cell("isoenzyme"), outputs=1)


def test_initial_weights_are_the_modules_own() -> None:
    cell = textbook_cell("isoenzyme")
    torch.manual_seed(0)
    model = make_model(config(conv="dgl.nn.GraphConv"), cell, outputs=1)
    weight = model.encoder.layers[0].convs[0].conv.module.weight
    assert float(weight.detach().abs().max()) <= (6 / (2 * WIDTH)) ** 0.5  # Glorot's uniform
