from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cobra
import numpy as np
import pytest

from dglcell.errors import DglcellError, GraphError
from dglcell.graph.catalogue import NetworkConfig
from dglcell.graph.cell import CellConfig, build_cell, describe
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.metabolism import DERIVED, Metabolism, derived_edges, enzyme_complexes, is_currency
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
    gene_relation,
)
from dglcell.graph.vocabulary import Vocabulary

Write = Callable[[str, str], str]


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
def small() -> CellGraph:
    """Return two genes and a reaction, one relation with weights."""
    edges = {
        ("gene", "near", "gene"): Edges(np.array([0, 1]), np.array([1, 0]), np.array([0.5, 2.0], np.float32)),
        ("gene", "catalyses", "reaction"): Edges(np.array([1]), np.array([0])),
    }
    return CellGraph.assemble({"gene": Vocabulary(("a", "b")), "reaction": Vocabulary(("r",))}, edges)


def test_cells_become_tables_of_names(small: CellGraph) -> None:
    assert repr(small) == "CellGraph(2 gene nodes, 1 reaction nodes, 3 edges)"
    frame = small.to_pandas()
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


def test_textbook_against_the_cobra_model(textbook: Metabolism) -> None:
    model = cobra.io.load_model("textbook")
    currency = {textbook.metabolites.names[i] for i in np.flatnonzero(is_currency(textbook))}
    complexes = {r.id: enzyme_complexes(r.gpr) for r in model.reactions}
    expected: dict[str, set[tuple[str, str]]] = {name: set() for name in DERIVED}
    for terms in complexes.values():
        together = {p for term in terms for p in itertools.permutations(sorted(term), 2)}
        expected["shares_complex"] |= together
        expected["isoenzyme"] |= set(itertools.permutations(sorted(frozenset().union(*terms)), 2)) - together
    for r, s in itertools.permutations(model.reactions, 2):
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
