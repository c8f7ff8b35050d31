"""Cell graphs: built from models and networks, held as arrays, kept in files."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cobra
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.errors import DglcellError, GraphError
from dglcell.graph.catalogue import NetworkConfig
from dglcell.graph.cell import CellConfig, build_cell, describe, read_cell, save_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.metabolism import (
    COLUMNS,
    DERIVED,
    Metabolism,
    derived_edges,
    enzyme_complexes,
    is_currency,
    wild_type_features,
    wild_type_fluxes,
)
from dglcell.graph.resident_graph import ResidentRelation
from dglcell.graph.schema import (
    CATALYSED_BY,
    CATALYSES,
    CONVERTED_BY,
    CONVERTS,
    GENE,
    METABOLIC_RELATIONS,
    METABOLITE,
    REACTION,
    Edges,
    Relation,
    gene_relation,
    merge_pairs,
)
from dglcell.graph.vocabulary import Vocabulary
from tests.examples import examples
from tests.graph.conftest import Write
from tests.random_cells import resident_cell


def table(path: str, **keys: Any) -> NetworkConfig:
    return NetworkConfig(path=path, **({"columns": ["a", "b"]} | keys))


def save(model: cobra.Model, tmp_path: Path) -> str:
    path = tmp_path / "toy.json"
    cobra.io.save_json_model(model, str(path))
    return str(path)


def test_textbook_cell() -> None:
    cell = build_cell(CellConfig(model="textbook", derived=sorted(DERIVED)))
    sizes = {node_type: len(names) for node_type, names in cell.vocabularies.items()}
    assert sizes == {GENE: 137, REACTION: 207, METABOLITE: 72}
    assert cell.num_nodes == sizes
    assert set(cell.relations) == {*METABOLIC_RELATIONS, *(gene_relation(name) for name in DERIVED)}
    for names in cell.vocabularies.values():
        assert list(names.names) == sorted(names.names)
    for there, back in ((CATALYSES, CATALYSED_BY), (CONVERTS, CONVERTED_BY)):
        forward, reverse = cell.edges(there), cell.edges(back).reversed().sorted()
        assert np.array_equal(forward.src, reverse.src)
        assert np.array_equal(forward.dst, reverse.dst)
        assert np.array_equal(forward.weight, reverse.weight)  # type: ignore[arg-type]
    assert cell.edges(CATALYSES).weight is None
    assert cell.provenance["model"]["name"] == "textbook"


def test_genes_are_the_union_of_model_and_networks(toy: cobra.Model, tmp_path: Path, write: Write) -> None:
    config = CellConfig(model=save(toy, tmp_path), networks={"physical": table(write("n.csv", "a,b\ng1,x\n"))})
    cell = build_cell(config)
    assert cell.genes.names == ("g1", "g2", "g3", "g4", "g5", "g6", "g7", "x")
    networks_only = build_cell(replace(config, model=None))
    assert networks_only.genes.names == ("g1", "x")


def test_ambiguous_aliases_do_not_become_genes(write: Write) -> None:
    aliases = write("aliases.csv", "orf,common\ng1,twin\ng2,twin\ng3,one\n")
    network = table(write("n.csv", "a,b\ng1,one\ntwin,g2\n"), unknown="drop")
    cell = build_cell(CellConfig(networks={"net": network}, aliases=aliases))
    assert cell.genes.names == ("g1", "g2", "g3")
    assert cell.provenance["networks"]["net"]["names"]["ambiguous"] == ["twin"]
    assert len(cell.edges(gene_relation("net"))) == 2


def test_genes_of_the_model_only(toy: cobra.Model, tmp_path: Path, write: Write) -> None:
    networks = {"net": table(write("n.csv", "a,b\ng1,g2\ng1,x\n"), unknown="drop")}
    cell = build_cell(CellConfig(model=save(toy, tmp_path), networks=networks, genes="model", metabolism=False))
    assert list(cell.num_nodes) == [GENE]
    assert cell.genes.names == ("g1", "g2", "g3", "g4", "g5", "g6", "g7")
    assert len(cell.edges(gene_relation("net"))) == 2


def test_a_gene_list_restricts_the_model(toy: cobra.Model, tmp_path: Path, write: Write) -> None:
    config = CellConfig(
        model=save(toy, tmp_path), genes=write("genes.txt", "g1\ng3\ng4\nextra\n"), derived=["metabolic_neighbour"]
    )
    with pytest.raises(GraphError, match=r"toy\.json'[\s\S]*4 unknown \(g2, g5, g6, g7\)[\s\S]*`cell\.unknown: drop`"):
        build_cell(config)
    config.unknown = "drop"
    cell = build_cell(config)
    assert cell.genes.names == ("extra", "g1", "g3", "g4")
    catalyses = cell.edges(CATALYSES)
    reactions = cell.vocabularies[REACTION].names
    pairs = {(cell.genes.names[g], reactions[r]) for g, r in zip(catalyses.src, catalyses.dst, strict=True)}
    assert pairs == {("g1", "R1#1+"), ("g3", "R1#2+"), ("g4", "R2#1+"), ("g4", "R2#1-")}
    assert cell.provenance["model"]["unknown"] == ["g2", "g5", "g6", "g7"]
    assert "1 of 4 genes are touched by no relation (self-loops aside)\n  extra\n" in describe(cell)


def test_relation_names_must_differ(write: Write) -> None:
    path = write("n.csv", "a,b,c\ng1,g2,1\n")
    networks = {"net": table(path, channels=["c"]), "net_c": table(path)}
    with pytest.raises(GraphError, match=r"relations share a name\n.*net_c\n.*rename a network"):
        build_cell(CellConfig(networks=networks))


def test_paths_may_be_relative_to_the_raw_folder(tmp_path: Path, write: Write) -> None:
    write("n.csv", "a,b\ng1,g2\n")
    cell = build_cell(CellConfig(networks={"net": table("n.csv")}), raw=str(tmp_path))
    assert cell.provenance["networks"]["net"]["path"] == "n.csv"
    assert cell.sha256 == build_cell(CellConfig(networks={"net": table(str(tmp_path / "n.csv"))})).sha256


NET = {"path": "n.csv", "columns": ["a", "b"]}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "`cell` is empty"),
        ({"networks": {"net": NET}, "genes": "model"}, "`cell.genes: model` needs `cell.model`"),
        ({"model": "mini", "derived": ["neighbours"]}, "`cell.derived` names no relation"),
        ({"model": "mini", "metabolism": False}, "`cell` gives no relations"),
        ({"networks": {"Net": NET}}, "cell.networks.Net: 'Net' cannot name a relation"),
        ({"networks": {"train": NET}}, "the relation name 'train' is taken"),
        (
            {"model": "mini", "metabolism": False, "networks": {"net": NET}, "lose_blocked": True},
            "`cell.lose_blocked` needs the reactions of a metabolic model",
        ),
        ({"networks": {"net": NET}, "media": {"rich": {}}}, "`cell.media` needs the exchange reactions of a metabolic"),
        ({"model": "mini", "genes": "all"}, "`cell.genes` is neither a choice nor a file"),
        ({"networks": {"net": NET}}, "raw file 'n.csv' not found"),
    ],
)
def test_bad_configurations(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    networks = {name: NetworkConfig(**values) for name, values in keys.pop("networks", {}).items()}
    with pytest.raises(DglcellError) as caught:
        build_cell(CellConfig(networks=networks, **keys), raw=str(tmp_path))
    assert message in str(caught.value)


@pytest.mark.raw
def test_yeast_cell(raw: Path) -> None:
    channels = ["neighborhood", "fusion", "cooccurence", "coexpression", "experimental", "database"]
    config = CellConfig(
        model="metabolism/yeast-GEM_9.0.2.mat",
        networks={
            "string": NetworkConfig(
                path="networks/string_v11_5_highconf_six_channels.csv.gz", columns=["orf_a", "orf_b"], channels=channels
            ),
            "physical": NetworkConfig(path="networks/biogrid_physical_kisr_edges.csv.gz", columns=["orf_a", "orf_b"]),
            "regulatory": NetworkConfig(
                path="networks/yeastract_edges.csv.gz", columns=["tf", "target"], directed=True
            ),
        },
    )
    cell = build_cell(config, raw=str(raw))
    assert {t: len(v) for t, v in cell.vocabularies.items()} == {GENE: 6041, REACTION: 7122, METABOLITE: 2806}
    edges = {relation[1]: len(cell.edges(relation)) for relation in cell.relations}
    expected = {"physical": 2 * (59377 - 1117) + 1117, "regulatory": 11486, "string_fusion": 2 * 492, "catalyses": 5450}
    assert {name: edges[name] for name in expected} == expected
    there = cell.edges(gene_relation("physical"))
    back = there.reversed().sorted()
    assert np.array_equal(there.src, back.src)
    assert np.array_equal(there.dst, back.dst)


@pytest.fixture
def two_genes() -> CellGraph:
    """Return two genes and a reaction, one relation with weights."""
    edges = {
        ("gene", "near", "gene"): Edges(np.array([0, 1]), np.array([1, 0]), np.array([0.5, 2.0], np.float32)),
        ("gene", "catalyses", "reaction"): Edges(np.array([1]), np.array([0])),
    }
    return CellGraph.assemble({"gene": Vocabulary(("a", "b")), "reaction": Vocabulary(("r",))}, edges)


def test_cells_become_tables_of_names(two_genes: CellGraph) -> None:
    assert repr(two_genes) == "CellGraph(2 gene nodes, 1 reaction nodes, 3 edges)"
    frame = two_genes.to_pandas()
    assert frame.source.tolist() == ["b", "b", "a"]
    assert frame.target.tolist() == ["r", "a", "b"]
    assert frame.weight.tolist()[1:] == [2.0, 0.5]


def pairs(name: str, metabolism: Metabolism) -> set[tuple[str, str]]:
    src, dst = derived_edges(name, metabolism)
    edges = list(zip(src.tolist(), dst.tolist(), strict=True))
    assert len(set(edges)) == len(edges)
    assert {(b, a) for a, b in edges} == set(edges)
    names = metabolism.genes.names
    return {(names[a], names[b]) for a, b in edges if a < b}


def test_currency_by_name_and_by_degree(textbook: Metabolism, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen() -> set[str]:
        return {textbook.metabolites.names[i] for i in np.flatnonzero(is_currency(textbook))}

    by_name = chosen()
    assert {"h_c", "h_e", "h2o_c", "atp_c", "nadh_c", "coa_c", "pi_c"} <= by_name
    assert not by_name & {"pyr_c", "pep_c", "accoa_c", "q8_c", "glu__L_c"}
    monkeypatch.setattr("dglcell.graph.metabolism.CURRENCY_DEGREE", 10)
    assert chosen() - by_name == {"pyr_c"}


def test_textbook_against_the_cobra_model(core: cobra.Model, textbook: Metabolism) -> None:
    currency = {textbook.metabolites.names[i] for i in np.flatnonzero(is_currency(textbook))}
    complexes = {r.id: enzyme_complexes(r.gpr) for r in core.reactions}
    expected: dict[str, set[tuple[str, str]]] = {name: set() for name in DERIVED}
    for terms in complexes.values():
        together = {p for term in terms for p in itertools.permutations(sorted(term), 2)}
        expected["shares_complex"] |= together
        expected["isoenzyme"] |= set(itertools.permutations(sorted(frozenset().union(*terms)), 2)) - together
    for r, s in itertools.permutations(core.reactions, 2):
        shared = {m.id for m in r.metabolites} & {m.id for m in s.metabolites}
        if shared - currency:
            ends = itertools.product((g.id for g in r.genes), (g.id for g in s.genes))
            expected["metabolic_neighbour"] |= {(a, b) for a, b in ends if a != b}
    for name, both_ways in expected.items():
        assert pairs(name, textbook) == {(a, b) for a, b in both_ways if a < b}, name


def test_a_model_without_complexes_is_told_so(toy: cobra.Model, tmp_path: Path) -> None:
    for reaction in toy.reactions:
        reaction.gene_reaction_rule = "g1" if reaction.id == "R1" else ""
    assert np.array_equal(np.unique(Metabolism.from_model(toy).catalyses[0]), [0])
    config = CellConfig(model=save(toy, tmp_path), derived=["isoenzyme"])
    with pytest.raises(GraphError, match=r"'isoenzyme' has no edges\n.*toy.json' with 7 genes\n.*out of `derived`"):
        build_cell(config)


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


def test_buffers_follow_the_dtype_and_are_not_in_checkpoints() -> None:
    cell = resident_cell({CONVERTS: ([0], [1])}, {"reaction": 1, "metabolite": 2}, {CONVERTS: [-2.0]}).double()
    converts = cell[CONVERTS]
    assert converts.weight is not None
    assert converts.weight.dtype == torch.float64
    assert converts.src.dtype == torch.int64
    assert cell.state_dict() == {}


def test_derived_forms_are_made_anew_after_a_change_of_dtype() -> None:
    ends = torch.tensor([2, 0, 2, 1]), torch.tensor([1, 1, 0, 1])
    relation = ResidentRelation(("a", "b", "c"), *ends, 3, 3, torch.tensor([1.5, 2.0, 3.0, 4.0]))
    before = relation.compact(torch.float32, transposed=False), relation.pieces(transposed=False)
    index = relation.index_tensors(transposed=True)
    relation.double()
    assert relation.index_tensors(transposed=True)[2].dtype == torch.float64
    assert index[2].dtype == torch.float32
    assert relation.compact(torch.float32, transposed=False) is not before[0]
    assert relation.pieces(transposed=False) is not before[1]


def row_of(model: cobra.Model, node_type: str, name: str) -> list[float]:
    return [float(x) for x in COLUMNS[node_type](model, wild_type_fluxes(model), [name])[0]]


def test_a_reaction_has_its_flux_in_its_own_direction(core: cobra.Model) -> None:
    flux = wild_type_fluxes(core)["PGI"]
    forward, backward = (row_of(core, "reaction", f"PGI#1{sign}") for sign in "+-")
    assert flux == pytest.approx(4.861, abs=1e-3)
    assert forward[:4] == pytest.approx([1, flux, 1.768, 1], abs=1e-3)
    assert backward[:4] == [-1, 0, 0, 0]
    assert forward[4:] == backward[4:] == [1, 1, 1, 1, 0, 0]  # reversible, 1 → 1, one complex, inside, no biomass


def test_a_metabolite_has_the_flux_that_goes_through_it(core: cobra.Model) -> None:
    found = row_of(core, "metabolite", "g6p_c")
    inflow = wild_type_fluxes(core)["GLCpts"]
    assert found[0] == pytest.approx(inflow)
    assert found[4] == pytest.approx(-0.205, abs=1e-3)  # taken by the biomass reaction


def test_features_are_standardised_for_every_node(core: cobra.Model, textbook: Metabolism) -> None:
    for node_type, names in (("reaction", textbook.reactions.names), ("metabolite", textbook.metabolites.names)):
        features = torch.from_numpy(wild_type_features(core, node_type, names))
        assert len(features) == len(names)
        assert torch.allclose(features.mean(0), torch.zeros(features.shape[1]), atol=1e-5)
        assert torch.allclose(features.std(0, correction=0), torch.ones(features.shape[1]), atol=1e-5)


def test_the_model_stays_as_it_is(core: cobra.Model, textbook: Metabolism) -> None:
    bounds = {reaction.id: reaction.bounds for reaction in core.reactions}
    wild_type_features(core, "reaction", textbook.reactions.names)
    assert {reaction.id: reaction.bounds for reaction in core.reactions} == bounds
    assert core.slim_optimize() == pytest.approx(0.8739, abs=1e-4)
    with pytest.raises(GraphError, match=r"no features `wild_type` of the node type 'gene'\n.*reaction or metabolite"):
        wild_type_features(core, "gene", ["b0001"])
    starved = core.copy()
    starved.reactions.get_by_id("ATPM").lower_bound = 1000
    with pytest.raises(GraphError, match=r"the wild type has no fluxes\n  got: .*\n  expected: a model that grows"):
        wild_type_fluxes(starved)
