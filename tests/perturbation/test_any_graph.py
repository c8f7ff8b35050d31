"""The engine on heterographs of strangers: any node types, given by DGL, PyTorch Geometric, pandas or lists."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import dglcell
from dglcell.cli.check import examine
from dglcell.errors import ConfigError, DglcellError, GenotypeError, GraphError, MissingDependencyError
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.resident import ResidentCell
from dglcell.graph.resident_graph import Derivation, dgl_runs_on
from dglcell.perturbation import DGL_STRATEGIES, STRATEGIES
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.sent import keep_masks
from tests.examples import examples
from tests.random_cells import agree, gradients

LIKES, LIKED = ("user", "likes", "item"), ("item", "liked_by", "user")
HAS, OF = ("item", "has", "tag"), ("tag", "of", "item")
SIZES = {"user": 9, "item": 7, "tag": 3}

DEVICES = ["cpu", *["cuda"] * torch.cuda.is_available()]

needs_dgl = pytest.mark.skipif(not dgl_runs_on("cpu"), reason="DGL cannot be imported")


def random_edges(seed: int = 0) -> dict[Any, Any]:
    """Return edges of four relations, with multi-edges."""
    g = torch.Generator().manual_seed(seed)
    return {r: tuple(torch.randint(SIZES[t], (40,), generator=g) for t in r[::2]) for r in (LIKES, LIKED, HAS, OF)}


def shop(seed: int = 0) -> dglcell.CellGraph:
    """Return users, items and tags without names, made by DGL, with a weight and features."""
    import dgl

    graph = dgl.heterograph(random_edges(seed), num_nodes_dict=SIZES)
    graph.edges["likes"].data["weight"] = torch.randn(40, 1, generator=torch.Generator().manual_seed(seed)).double()
    graph.edges["likes"].data["day"] = torch.arange(40)
    graph.nodes["item"].data["x"] = torch.arange(14.0).view(7, 2)
    return dglcell.CellGraph(graph)


def network(cell: dglcell.CellGraph, conv: type[nn.Module]) -> nn.ModuleList:
    torch.manual_seed(0)
    hows = ("sum", "mean")
    layers = (dglcell.nn.HeteroLayer(cell.relations, lambda r: conv(r, 4), width=4, cross_relation=h) for h in hows)
    return nn.ModuleList(layers).double()


def pooled(layers: nn.ModuleList, strains: Any, rows: Mapping[str, Tensor], node_type: str) -> Tensor:
    """Return the mean over the kept nodes of a type after all layers, [B, H]."""
    states: Any = rows
    for layer in layers:
        states = layer(strains, states)
    mean = dglcell.nn.MeanPooling()(states[node_type], strains.kept[node_type])
    return mean.base_1H + mean.difference_BH


TARGETS = st.fixed_dictionaries(
    {},
    optional={
        t: st.lists(st.lists(st.integers(0, n - 1), max_size=4, unique=True), min_size=3, max_size=3)
        for t, n in SIZES.items()
    },
).filter(bool)


@needs_dgl
@pytest.mark.parametrize("conv", [dglcell.nn.GINConv, dglcell.nn.SAGEConv])
@examples(4)
@given(targets=TARGETS, seed=st.integers(0, 1000))
def test_all_strategies_and_reduced_graphs_are_equal(conv: type[nn.Module], targets: Any, seed: int) -> None:
    """Forward and all gradients, for nodes of every type that strains lose."""
    import dgl

    cell = shop(seed)
    layers = network(cell, conv)
    rows = {t: torch.randn(n, 4, dtype=torch.float64, requires_grad=True) for t, n in SIZES.items()}
    leaves = [*rows.values(), *layers.parameters()]

    parts = []
    for reduced in dglcell.graphs(cell, targets):
        alone = dglcell.CellGraph(reduced)
        kept = {t: x[reduced.nodes[t].data[dgl.NID]] for t, x in rows.items()}
        strain = dglcell.perturb(alone, {"item": [[]]}, strategy="node_mask")
        parts.append(pooled(layers, strain, kept, "item"))
    expected = [torch.cat(parts), *gradients(torch.cat(parts), leaves)]
    for strategy in STRATEGIES:
        found = pooled(layers, dglcell.perturb(cell, targets, strategy=strategy), rows, "item")
        agree([found, *gradients(found, leaves)], expected, strategy)


@needs_dgl
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_activities_of_nodes_and_edges_are_those_of_dgls_graphs(reduce: str) -> None:
    import dgl.function as fn

    cell, x = shop(), torch.randn(9, 3, dtype=torch.float64)
    left = torch.tensor([0.0, 0.3, 2.0, 1.0], dtype=torch.float64, requires_grad=True)
    given: dict[str, Any] = {"targets": {"user": [[1, 4], [5, 6]]}, "edges": {"likes": [[3, 8], []]}}
    given["activities"] = {"user": left, "likes": [[0.5, 0.0], []]}
    rows = []
    for graph in dglcell.graphs(cell, **given):
        graph = graph[LIKES]
        weight = graph.edata["activity"].double() * graph.srcdata["activity"][graph.edges()[0]]
        graph.srcdata["h"] = x[graph.srcdata["_ID"]]
        graph.edata["w"] = (weight * graph.edata["weight"].squeeze()).unsqueeze(1)
        graph.edata["one"] = weight.unsqueeze(1)
        graph.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "y"))
        graph.update_all(fn.copy_e("one", "m"), fn.sum("m", "d"))
        y, degree = graph.dstdata["y"], graph.dstdata["d"]
        rows.append(y / torch.where(degree == 0, 1, degree) if reduce == "mean" else y)
    expected = torch.stack(rows, 1)
    for strategy in DGL_STRATEGIES:
        found = dglcell.perturb(cell, **given, strategy=strategy).aggregate(LIKES, x, reduce).whole()
        agree([found], [expected], strategy)
        agree(torch.autograd.grad(found.sum(), left), torch.autograd.grad(expected.sum(), left, retain_graph=True))
    del given["edges"], given["activities"]["likes"]
    sums = [dglcell.perturb(cell, **given, strategy=s).aggregate(LIKES, x, reduce).whole() for s in STRATEGIES]
    ends = [[y.detach(), *torch.autograd.grad(y.sum(), left)] for y in sums]
    for end in ends:
        agree(end, ends[0])


@needs_dgl
def test_edges_are_named_by_their_ids_in_dgl() -> None:
    import dgl

    cell, x = shop(), torch.randn(9, 3, dtype=torch.float64)
    found = dglcell.perturb(cell, {}, edges={LIKES: [[0, 7], [39], []]}).aggregate(LIKES, x).whole()
    for strain, edges in enumerate([[0, 7], [39], []]):
        graph = dgl.remove_edges(cell.graph, torch.tensor(edges, dtype=torch.int64), etype=LIKES)
        alone = dglcell.perturb(dglcell.CellGraph(graph), {"user": [[]]}).aggregate(LIKES, x).whole()
        agree([found[:, strain]], [alone[:, 0]])
    for name, other in (("likes", LIKES), (LIKES, "likes")):
        edges = {name: [[0, 7], [39], []]}
        by_name = dglcell.perturb(cell, {"user": [[], [], []]}, edges=edges, activities={other: torch.zeros(3)})
        assert torch.equal(by_name.aggregate(LIKES, x).whole(), found)
    reduced = dglcell.graphs(cell, {"user": [[1]]}, edges={"likes": [[0, 7]]})[0]
    assert reduced.edges["likes"].data["day"].tolist() == reduced.edges["likes"].data[dgl.EID].tolist()
    assert not {0, 7} & {*reduced.edges["likes"].data[dgl.EID].tolist()}
    assert dglcell.graphs(cell, {"user": [[1], []]}, batched=True).batch_size == 2


class Unliked(Derivation):
    """Lose items that nobody who is left likes."""

    node_type = "item"

    def __init__(self, cell: dglcell.CellGraph) -> None:
        super().__init__()
        src, dst, _ = cell.edge_tensors()[LIKES]
        self.likes = torch.zeros(cell.num_nodes["item"], cell.num_nodes["user"]).index_put((dst, src), torch.ones(()))

    def lost(self, keep: Mapping[str, Tensor], asked: object) -> Tensor:
        return self.likes @ keep["user"].float() == 0


EDGES = {LIKES: (["ann", "bob", "bob"], ["tea", "tea", "salt"]), HAS: (["tea", "salt"], ["hot", "white"])}


@pytest.mark.parametrize(
    ("derive", "items", "tags"),
    [
        ((), [1, 1], [1, 1]),
        ((LIKES,), [0, 0], [1, 1]),
        ((LIKES, HAS), [0, 0], [0, 0]),
        ((Unliked,), [0, 1], [1, 1]),
        ((Unliked, HAS), [0, 1], [1, 0]),
    ],
)
def test_what_is_lost_with_others_is_said_by_the_user(derive: Any, items: list[int], tags: list[int]) -> None:
    """Bob alone likes salt, tea is Ann's, too; names are in the order of the alphabet."""
    cell = dglcell.CellGraph(EDGES, derive=derive)
    kept = dglcell.perturb(cell, {"user": [["bob"]]}).keep
    assert kept["item"].squeeze(1).int().tolist() == items
    assert kept["tag"].squeeze(1).int().tolist() == tags
    weak = dglcell.perturb(dglcell.CellGraph(EDGES, derive=[LIKES]), {"user": [["bob"]]}, activities={"user": [[0.5]]})
    assert weak.kept["item"].activities_NB.squeeze(1).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("lose_blocked", [False, True])
def test_cells_of_experiments_have_their_rules(lose_blocked: bool) -> None:
    cell = build_cell(CellConfig(model="textbook", lose_blocked=lose_blocked))
    genes = ["b0727", "b0720", "b2926"]
    batch = GenotypeBatch.from_lists([[cell.genes.index(gene)] for gene in genes])
    found, known = (
        dglcell.perturb(cell, {"gene": [[gene] for gene in genes]}).keep,
        keep_masks(ResidentCell.of(cell), batch),
    )
    assert all(torch.equal(found[node_type], known[node_type]) for node_type in cell.num_nodes)
    assert (~found["reaction"]).sum(0).tolist() == ([2, 6, 8] if lose_blocked else [1, 1, 2])


@needs_dgl
def test_graphs_go_out_as_they_came_in() -> None:
    import dgl

    cell = shop()
    again = dglcell.CellGraph(cell.graph)
    assert cell.graph.ntypes == ["item", "tag", "user"]
    assert torch.equal(cell.graph.edges["likes"].data["day"], torch.arange(40))
    assert again.sha256 == cell.sha256 == dglcell.CellGraph(cell.graph.int()).sha256
    for relation, (src, dst) in random_edges().items():
        assert [x.tolist() for x in cell.graph.edges(etype=relation)] == [src.tolist(), dst.tolist()]
    pyg = pytest.importorskip("torch_geometric.data")
    data = pyg.HeteroData()
    for node_type, number in cell.num_nodes.items():
        data[node_type].num_nodes = number
    for relation, (src, dst, weight) in cell.edge_tensors().items():
        data[relation].edge_index = torch.stack([src, dst])
        if weight is not None:
            data[relation].edge_weight = weight
    data["item"].x, data[LIKES].day = cell.ndata["item"]["x"], torch.arange(40)
    back = dglcell.CellGraph(data)
    assert back.sha256 == cell.sha256
    assert torch.equal(back.ndata["item"]["x"], cell.ndata["item"]["x"])
    assert torch.equal(back.edata[LIKES]["day"], torch.arange(40))
    unsized = pyg.HeteroData({LIKES: {"edge_index": data[LIKES].edge_index}})
    assert dglcell.CellGraph(unsized, num_nodes=cell.num_nodes).num_nodes == cell.num_nodes
    with pytest.raises(GraphError, match=r"that there is not\n.*\n.*\n.* in `num_nodes`"):
        dglcell.CellGraph(unsized)
    for name, wrong in (("edge_weight", torch.ones(3)), ("edge_index", torch.tensor([[0.5], [0.0]]))):
        with pytest.raises(GraphError, match="do not fit" if name == "edge_weight" else "has no `edge_index`"):
            dglcell.CellGraph(pyg.HeteroData({**data.to_dict(), LIKES: {**data[LIKES].to_dict(), name: wrong}}))
    data["user"].names = [f"user {i}" for i in range(cell.num_nodes["user"])]
    assert dglcell.CellGraph(data).vocabularies["user"].names[1] == "user 1"
    assert dglcell.CellGraph(dgl.rand_graph(5, 9)).num_nodes == {"_N": 5}


def test_names_are_kept_and_numbers_are_names_where_there_are_none() -> None:
    cell = dglcell.CellGraph(EDGES)
    assert cell.vocabularies["user"].names == ("ann", "bob")
    tables = {r: pd.DataFrame({"source": u, "target": v}) for r, (u, v) in EDGES.items()}
    assert dglcell.CellGraph(tables).sha256 == cell.sha256
    tables[LIKES]["weight"] = [1.0, 2.0, 0.5]
    assert dglcell.CellGraph(tables).content[LIKES].weight.tolist() == [1.0, 2.0, 0.5]
    numbered = dglcell.CellGraph({LIKES: np.array([[0, 1], [2, 0]])}, num_nodes={"user": 4, "tag": 2})
    assert numbered.num_nodes == {"item": 3, "tag": 2, "user": 4}
    assert numbered.vocabularies["user"].names == ("0", "1", "2", "3")
    named = dglcell.CellGraph({LIKES: ([1], [0])}, names={"user": ["zoe", "ann"], "item": ["tea"]})
    by_name, by_id = (dglcell.perturb(named, {"user": [[user]]}).keep["user"] for user in ("ann", 1))
    assert by_name.tolist() == by_id.tolist() == [[True], [False]]
    with pytest.raises(GenotypeError, match=r"nodes called 'Ann' \(close: ann\)"):
        dglcell.perturb(cell, {"user": [["Ann"]]})


# fmt: off
NO_STRAINS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"users": [[0]]}, {}, "no nodes of type 'users' | item, tag, user | did you mean user?"),
    ({"user": [[], [2, 9]]}, {}, "strain 1: there are no such user nodes | 9 | 0 … 8"),
    ({"tag": [[-1]]}, {}, "no such tag node | -1 | 0 … 2"),
    ({"tag": [[0.5]]}, {}, "no such tag node | 0.5 | whole numbers"),
    ({"item": [[1, 2, 1]]}, {}, "strain 0 names item nodes twice | 1 | leave one out"),
    ({"item": [3]}, {}, "strain 0: its item nodes are no list | 3"),
    ({"item": ["12"]}, {}, "are no list | '12'"),
    ({"item": []}, {}, "there are no strains | 0 for 'item' | [] for one"),
    ({}, {}, "there are no strains | no lists"),
    ({"item": [[0]], "tag": [[0], [1]]}, {}, "different numbers of strains | 1 for 'item', 2 for 'tag'"),
    ({"item": [[0]]}, {"activities": {"tag": [[0.1]]}}, "of nothing that strains change | tag | 'item'"),
    ({"item": [[0]]}, {"activities": {"item": [[0.1, 0.2]]}}, "do not fit | 2 | 1; or one"),
    ({"item": [[0]]}, {"activities": {"item": [[-0.1]]}}, "no amount | -0.1 | 0 for a"),
    ({"item": [[0]]}, {"activities": {"item": 0.5}}, "no lists of numbers | 0.5 | a list for each strain"),
    ({"item": [[0]]}, {"activities": {"item": []}}, "do not fit | 1; or one"),
    ({"item": [[0]]}, {"activities": [[0.5]]}, "`activities` do not say their node type or relation | list"),
    ([[0]], {}, "`targets` do not say their node type | list"),  # type: ignore[list-item]
    ({}, {"edges": {"likes": [[0]], LIKES: [[1]]}}, "a relation is named twice | likes | each once"),
    ({}, {"edges": {"likes": [[40]]}}, "no such edges of | likes | 40 | 0 … 39"),
    ({}, {"edges": {"like": [[0]]}}, "no relation | like | did you mean likes"),
    ({}, {"edges": [["likes:0>1"]]}, "do not say their relation | list | relation → a list of ids"),
    ({}, {"edges": torch.zeros(2, 2)}, "do not say their relation | Tensor | relation → a list of ids"),
    ({}, {"edges": {"likes": [[0]]}, "strategy": "node_mask"}, "single edges | node_mask | edge_mask"),
    ({"user": [[0]]}, {"strategy": "nodemask"}, "unknown strategy | nodemask | node_mask"),
]
# fmt: on


@needs_dgl
@pytest.mark.parametrize(("targets", "options", "says"), NO_STRAINS, ids=str)
def test_targets_that_are_wrong_are_named(targets: dict[str, Any], options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError if "strategy" in options else GenotypeError) as caught:
        dglcell.perturb(shop(), targets, **options)
    assert all(part in str(caught.value) for part in says.split(" | ")), str(caught.value)


def rows(cell: dglcell.CellGraph, x: Tensor, relation: Any = LIKES, reduce: str = "sum") -> object:
    return dglcell.perturb(cell, {"user": [[0]]}).aggregate(relation, x, reduce)


def other(cell: dglcell.CellGraph) -> Any:
    return {"user": dglcell.perturb(cell, {"user": [[0], []]}).start(torch.ones(9, 2))}


def weighted(cell: dglcell.CellGraph, weight: Tensor) -> object:
    graph = cell.graph.clone()
    graph.edges["has"].data["weight"] = weight
    return dglcell.CellGraph(graph)


CellGraph, GINConv = dglcell.CellGraph, dglcell.nn.GINConv
Wrong = tuple[type[DglcellError], Callable[[Any, Any], object], str]
# fmt: off
WRONG: list[Wrong] = [
    (ConfigError, lambda c, _: rows(c, torch.zeros(9, 2), reduce="max"), "cannot be reduced so | max | sum or mean"),
    (GraphError, lambda c, _: rows(c, torch.zeros(9, 2, device="meta")), "do not fit | meta | cell.to(device)"),
    (GraphError, lambda c, _: rows(c, torch.zeros(9, 2).long()), "do not fit | torch.int64 | floating-point"),
    (GraphError, lambda c, _: rows(c, torch.zeros(7, 2)), "no states of the sources | 7 rows | 9, one"),
    (GraphError, lambda c, _: rows(c, dglcell.perturb(c, {"user": [[], []]}).start(torch.ones(9, 2))), "2 strains"),
    (GraphError, lambda c, _: rows(c, torch.zeros(9, 2), ("user", "x", "item")), "no such relation | likes"),
    (GraphError, lambda c, _: CellGraph(c.graph, derive=[("a", "b", "c")]).resident, "no such relation"),
    (GraphError, lambda c, _: CellGraph(c.graph, derive=LIKES).resident, "no such relation | user"),
    (GraphError, lambda c, _: rows(c.graph, torch.zeros(9, 2)), "not of a cell graph | DGLGraph | dglcell.CellGraph("),
    (GraphError, lambda c, _: rows(c, [[0.0]] * 9), "do not fit | list | floating-point"),
    (GraphError, lambda c, _: pooled([], dglcell.perturb(c, {"user": [[]]}), other(c), "user"), "9 nodes, 2 strains"),
    (GraphError, lambda c, _: pooled(network(c, GINConv), c, {"user": 0}, "user"), "none of item, tag"),
    (ConfigError, lambda c, _: network(c, lambda r, w: (g := GINConv(r, w)).mlp.append(nn.BatchNorm1d(w)) and g),
     "takes statistics over nodes or strains | BatchNorm1d | LayerNorm"),
    (ConfigError, lambda c, dgl: network(c, lambda *_: dgl.nn.GraphConv(4, 4)), "made of | GraphConv | as_convolution"),
    (GraphError, lambda c, dgl: CellGraph(dgl.batch([dgl.rand_graph(3, 4)] * 2)), "a batch of 2 graphs | dgl.unbatch"),
    (GraphError, lambda c, dgl: CellGraph(dgl.to_block(c.graph)), "no whole graph | a block of DGL | sampled from"),
    (GraphError, lambda c, _: weighted(c, torch.ones(40, 2)), "weights of relation | shape (40, 2) | another name"),
    (GraphError, lambda c, _: weighted(c, torch.full((40,), torch.nan)), "weights of relation | no finite number"),
    (GraphError, lambda c, _: CellGraph(torch.eye(3)), "no heterograph | Tensor | DGL"),
    (GraphError, lambda c, _: CellGraph({}), "no relations"),
    (GraphError, lambda c, _: CellGraph({"likes": ([0], [1])}), "three texts | 'likes'"),
    (GraphError, lambda c, _: CellGraph({LIKES: ([0, 1], [1])}), "other numbers | 2 and 1"),
    (GraphError, lambda c, _: CellGraph({LIKES: ([0.5], [1])}), "neither numbers nor names | float"),
    (GraphError, lambda c, _: CellGraph({LIKES: ([5], [1])}, num_nodes={"user": 3}),
     "there is not | 5 to 5 | 0 … 2 | num_nodes"),
    (GraphError, lambda c, _: CellGraph(c.graph, names={"user": ["x"]}), "1 names for 9 nodes"),
    (GraphError, lambda c, _: CellGraph({LIKES: (["x"], ["y"])}, num_nodes={"user": 5}), "1 names for 5 nodes"),
    (GraphError, lambda c, _: CellGraph({LIKES: ([0], [1])}, names={"user": ["x", "x"]}), "have one name | x"),
    (GraphError, lambda c, _: CellGraph({LIKES: pd.DataFrame({"a": [1]})}), "lacks columns | source, target"),
    (GraphError, lambda c, _: CellGraph({LIKES: pd.DataFrame({"source": ["x"], "target": ["y"], "weight": "high"})}),
     "weights of relation | no finite number"),
    (GraphError, lambda c, _: CellGraph({LIKES: 5}), "are no pair | no lists"),
    (GraphError, lambda c, _: CellGraph({LIKES: (0, 1)}), "neither numbers nor names"),
]
# fmt: on


@needs_dgl
@pytest.mark.parametrize(("error", "do", "says"), WRONG, ids=[says for *_, says in WRONG])
def test_what_is_wrong_is_named(error: type[DglcellError], do: Callable[[Any, Any], object], says: str) -> None:
    import dgl

    with pytest.raises(error) as caught:
        do(shop(), dgl)
    assert all(part in str(caught.value) for part in says.split(" | ")), str(caught.value)


@pytest.mark.parametrize("trouble", [ImportError("no module dgl"), FileNotFoundError("no libgraphbolt.so")])
def test_without_dgl_everything_but_its_parts_works(trouble: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "dgl":
                raise trouble

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    for name in [name for name in sys.modules if name.partition(".")[0] == "dgl"]:
        monkeypatch.delitem(sys.modules, name)
    dgl_runs_on.cache_clear()
    try:
        cell = dglcell.CellGraph(EDGES)
        strains = dglcell.perturb(cell, {"user": [["ann"], []]})
        assert strains.aggregate(LIKES, torch.ones(2, 1)).whole()[:, 0].flatten().tolist() == [1.0, 1.0]
        wanting: dict[str, Callable[[], object]] = {
            "graph": lambda: cell.graph,
            "graphs": lambda: dglcell.graphs(cell, {"user": [[0]]}),
            "edges": lambda: dglcell.perturb(cell, {}, edges={"likes": [[0]]}),
            "strategy": lambda: dglcell.perturb(cell, {"user": [[0]]}, strategy="edge_subgraph"),
        }
        for what, call in wanting.items():
            with pytest.raises(MissingDependencyError, match=f"DGL cannot be imported\n  got: +{trouble}\n") as caught:
                call()
            assert "pip install dgl" in str(caught.value), what
        found = next(finding for finding in examine() if finding.what == "dgl")
        assert found.state.startswith(f"not here ({trouble}): without it")
    finally:
        dgl_runs_on.cache_clear()
