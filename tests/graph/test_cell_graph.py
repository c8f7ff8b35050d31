"""Edges as arrays, and the cell graph that holds them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import cobra
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.errors import GraphError
from dglcell.graph.cell import read_cell, save_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.metabolism import COLUMNS, Metabolism, wild_type_features, wild_type_fluxes
from dglcell.graph.resident import ResidentCell
from dglcell.graph.resident_graph import ResidentRelation
from dglcell.graph.schema import CATALYSES, CONVERTS, GENE, REACTION, Edges, Relation, gene_relation, merge_pairs
from dglcell.graph.vocabulary import Vocabulary
from tests.examples import examples
from tests.random_cells import resident_cell


def pairs_of(edges: Edges) -> list[tuple[int, int]]:
    return sorted(zip(edges.src.tolist(), edges.dst.tolist(), strict=True))


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=40))
def test_undirected_pairs_are_merged_in_the_direction_of_their_first_row(pairs: list[tuple[int, int]]) -> None:
    first = {frozenset(pair): pair for pair in reversed(pairs)}.values()
    merged = merge_pairs(Edges(*np.array(pairs, dtype=np.int64).reshape(-1, 2).T), ordered=False)
    assert pairs_of(merged) == sorted(first)
    assert pairs_of(merged.symmetrised()) == sorted({*first, *((b, a) for a, b in first)})


@st.composite
def cells(draw: st.DrawFn) -> CellGraph:
    sizes = {GENE: draw(st.integers(1, 6)), REACTION: draw(st.integers(1, 4))}
    relations: dict[Relation, Edges] = {}
    for relation in [gene_relation("one"), gene_relation("two"), CATALYSES]:
        ends = st.tuples(st.integers(0, sizes[relation[0]] - 1), st.integers(0, sizes[relation[2]] - 1))
        pairs = np.array(draw(st.lists(ends, max_size=12)), dtype=np.int64).reshape(-1, 2)
        weight = None
        if draw(st.booleans()):
            numbers = st.lists(st.floats(width=32), min_size=len(pairs), max_size=len(pairs))
            weight = np.array(draw(numbers), dtype=np.float32)
        relations[relation] = Edges(pairs[:, 0], pairs[:, 1], weight)
    vocabularies = {node: Vocabulary.of(f"{node}{i}" for i in range(size)) for node, size in sizes.items()}
    return CellGraph.assemble(vocabularies, relations, {"made": "by Hypothesis", "é": [1, None]})


@examples(20)
@given(cell=cells())
def test_save_and_load(cell: CellGraph, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("cells") / "cell"
    save_cell(cell, directory)
    loaded = read_cell(directory)
    assert loaded.sha256 == cell.sha256
    assert loaded.vocabularies == cell.vocabularies
    assert loaded.provenance == cell.provenance
    assert loaded.relations == cell.relations
    assert loaded.num_nodes == cell.num_nodes
    for relation in cell.relations:
        a, b = cell.edges(relation), loaded.edges(relation)
        assert (a.src.tolist(), a.dst.tolist()) == (b.src.tolist(), b.dst.tolist())
        assert (a.weight is None) == (b.weight is None)
        if a.weight is not None and b.weight is not None:
            assert np.array_equal(a.weight, b.weight, equal_nan=True)


def small(weight: float = 1.0, edge: tuple[int, int] = (0, 1), gene: str = "YA") -> CellGraph:
    edges = Edges(np.array([edge[0], 2, 0]), np.array([edge[1], 0, 0]), np.array([weight, 2, 3], dtype=np.float32))
    return CellGraph.assemble({GENE: Vocabulary.of([gene, "YB", "YC"])}, {gene_relation("net"): edges})


def test_hash_sees_names_edges_weights_and_their_absence() -> None:
    bare = CellGraph.assemble(
        small().vocabularies, {gene_relation("net"): Edges(np.array([0, 2, 0]), np.array([1, 0, 0]))}
    )
    cells = [small(), small(weight=1.5), small(edge=(1, 1)), small(gene="YAA"), bare]
    assert len({cell.sha256 for cell in cells}) == len(cells)
    assert small().sha256 == small().sha256


def test_hash_is_the_same_in_another_process_and_order() -> None:
    assert small().sha256 == "60c499e10d5a7ea0bf424abe172e91056417c82f420ea51886a3a39f80df5e84"
    edges = small().edges(gene_relation("net"))
    shuffled = CellGraph.assemble(small().vocabularies, {gene_relation("net"): edges.select(np.array([2, 0, 1]))})
    assert shuffled.sha256 == small().sha256


def edit(cell: Path, **changes: object) -> None:
    path = cell / "cell.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def of_another(cell: Path) -> None:
    save_cell(small(weight=5), cell.parent / "other")
    shutil.copy(cell.parent / "other" / "edges.npz", cell / "edges.npz")


DAMAGES: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "nothing": (shutil.rmtree, ("no such directory",)),
    "no names": (lambda cell: (cell / "cell.json").unlink(), ("an existing directory without cell.json",)),
    "another cell's edges": (of_another, (small().sha256, small(weight=5).sha256)),
    "another version": (lambda cell: edit(cell, schema_version=99), ("by another version", "schema version 99")),
    "other names": (lambda cell: edit(cell, vocabularies={"gene": ["YA", "YB", "YX"]}), ("content hash",)),
    "more relations": (
        lambda cell: edit(cell, relations=[["gene", "net", "gene"], ["gene", "more", "gene"]]),
        ("whole arrays for every relation",),
    ),
    "a part of it": (
        lambda cell: (cell / "cell.json").write_text(json.dumps({"schema_version": 1})),
        ("cell.json: `sha256` is missing",),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_files_that_are_not_as_they_were_written_are_refused(damage: str, tmp_path: Path) -> None:
    save_cell(small(), tmp_path / "cell")
    do, said = DAMAGES[damage]
    do(tmp_path / "cell")
    with pytest.raises(GraphError) as caught:
        read_cell(tmp_path / "cell")
    assert all(part in str(caught.value) for part in said)


PHYSICAL = ("gene", "physical", "gene")


def small_cell() -> ResidentCell:
    return resident_cell(
        {PHYSICAL: ([0, 2, 1], [2, 0, 0]), CONVERTS: ([0], [1])},
        {"gene": 3, "reaction": 1, "metabolite": 2},
        {CONVERTS: [-2.0]},
    )


def test_buffers_follow_the_dtype_and_are_not_in_checkpoints() -> None:
    cell = small_cell().double()
    converts = cell["reaction", "converts", "metabolite"]
    assert converts.weight is not None
    assert converts.weight.dtype == torch.float64
    assert converts.src.dtype == torch.int64
    assert cell.state_dict() == {}


def weighted_relation() -> ResidentRelation:
    ends = torch.tensor([2, 0, 2, 1]), torch.tensor([1, 1, 0, 1])
    return ResidentRelation(("a", "b", "c"), *ends, num_src=3, num_dst=3, weight=torch.tensor([1.5, 2.0, 3.0, 4.0]))


def test_derived_forms_are_made_anew_after_a_change_of_dtype() -> None:
    relation = weighted_relation()
    before = relation.compact(torch.float32, transposed=False), relation.pieces(transposed=False)
    index = relation.index_tensors(transposed=True)
    relation.double()
    assert relation.index_tensors(transposed=True)[2].dtype == torch.float64
    assert index[2].dtype == torch.float32
    assert relation.compact(torch.float32, transposed=False) is not before[0]
    assert relation.pieces(transposed=False) is not before[1]


@pytest.fixture(scope="module")
def model() -> cobra.Model:
    return cobra.io.load_model("textbook")


@pytest.fixture(scope="module")
def metabolism(model: cobra.Model) -> Metabolism:
    return Metabolism.from_model(model)


def row_of(model: cobra.Model, node_type: str, name: str) -> list[float]:
    return [float(x) for x in COLUMNS[node_type](model, wild_type_fluxes(model), [name])[0]]


def test_a_reaction_has_its_flux_in_its_own_direction(model: cobra.Model) -> None:
    flux = wild_type_fluxes(model)["PGI"]
    forward, backward = (row_of(model, "reaction", f"PGI#1{sign}") for sign in "+-")
    assert flux == pytest.approx(4.861, abs=1e-3)
    assert forward[:4] == pytest.approx([1, flux, 1.768, 1], abs=1e-3)
    assert backward[:4] == [-1, 0, 0, 0]
    assert forward[4:] == backward[4:] == [1, 1, 1, 1, 0, 0]  # reversible, 1 → 1, one complex, inside, no biomass


def test_a_metabolite_has_the_flux_that_goes_through_it(model: cobra.Model) -> None:
    found = row_of(model, "metabolite", "g6p_c")
    inflow = wild_type_fluxes(model)["GLCpts"]
    assert found[0] == pytest.approx(inflow)
    assert found[4] == pytest.approx(-0.205, abs=1e-3)  # taken by the biomass reaction


def test_features_are_standardised_for_every_node(model: cobra.Model, metabolism: Metabolism) -> None:
    for node_type, names in (("reaction", metabolism.reactions.names), ("metabolite", metabolism.metabolites.names)):
        features = torch.from_numpy(wild_type_features(model, node_type, names))
        assert len(features) == len(names)
        assert torch.allclose(features.mean(0), torch.zeros(features.shape[1]), atol=1e-5)
        assert torch.allclose(features.std(0, correction=0), torch.ones(features.shape[1]), atol=1e-5)


def test_the_model_stays_as_it_is(model: cobra.Model, metabolism: Metabolism) -> None:
    bounds = {reaction.id: reaction.bounds for reaction in model.reactions}
    wild_type_features(model, "reaction", metabolism.reactions.names)
    assert {reaction.id: reaction.bounds for reaction in model.reactions} == bounds
    assert model.slim_optimize() == pytest.approx(0.8739, abs=1e-4)
    with pytest.raises(GraphError, match=r"no features `wild_type` of the node type 'gene'\n.*reaction or metabolite"):
        wild_type_features(model, "gene", ["b0001"])
    starved = model.copy()
    starved.reactions.get_by_id("ATPM").lower_bound = 1000
    with pytest.raises(GraphError, match=r"the wild type has no fluxes\n  got: .*\n  expected: a model that grows"):
        wild_type_fluxes(starved)
