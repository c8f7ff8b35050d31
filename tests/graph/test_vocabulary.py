"""Names of nodes and their files, numbers for nodes from files, and relations between similar genes."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.sources import SourceConfig, load_source
from dglcell.data.sources.config import CsvConfig
from dglcell.errors import ConfigError, GraphError
from dglcell.graph import catalogue, networks
from dglcell.graph.catalogue import GENE_SETS, MODELS, NetworkConfig, add_names, names_of_genes, names_of_model
from dglcell.graph.cell import CellConfig, build_cell, read_cell, save_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.model_files import SHIPPED, named_aliases, read_model
from dglcell.graph.networks import SimilarityConfig, SimilaritySource, neighbourhoods, similar_genes
from dglcell.graph.schema import Edges, gene_relation
from dglcell.graph.tables import (
    read_aliases,
    read_gene_list,
    read_genome_table,
    read_gff,
    read_sgd_features,
    read_vectors,
)
from dglcell.graph.vocabulary import Vocabulary, names_of_date
from tests.examples import examples
from tests.graph.conftest import Write
from tests.raw_files import GENES, standard_name, write_gene_sets

# Vocabularies, aliases and the policy for names that do not map.


@given(names=st.lists(st.text(min_size=1, max_size=5), max_size=20))
def test_indices_and_names_are_inverse(names: list[str]) -> None:
    vocabulary = Vocabulary.of(names)
    assert list(vocabulary.names) == sorted(set(names))
    assert [vocabulary.names[i] for i in vocabulary.indices(names)] == names
    assert vocabulary.sha256 == Vocabulary.of(reversed(names)).sha256
    assert vocabulary.sha256 != Vocabulary.of([*names, "another"]).sha256


def test_unknown_names() -> None:
    vocabulary = Vocabulary.of(["YAL001C", "YAL002W"])
    assert vocabulary.indices(["YAL002W", "YAL003W"]).tolist() == [1, -1]
    with pytest.raises(GraphError, match=r"unknown name 'YAL001' \(close: YAL001C"):
        vocabulary.index("YAL001")


def test_gene_list(write: Write) -> None:
    path = write("genes.txt.gz", "# genes\nYB\n\n YA  # first\nYB\n")
    assert read_gene_list(Path(path)).names == ("YA", "YB")


@pytest.mark.parametrize("mark", ["\t", ","])
def test_aliases(write: Write, mark: str) -> None:
    rows = ["Strain,Orf,Common", "YA_sn1,YA,ABC1", "YA_sn2,YA,ABC1", "YB_sn3,YB,TWIN", "YC_sn4,YC,TWIN", "YD_sn5,YD,YD"]
    table = read_aliases(Path(write("aliases.tsv", "\n".join(rows).replace(",", mark))))
    assert not {"YA", "YD", ""} & set(table.aliases)
    assert table.aliases["YA_sn2"] == table.aliases["ABC1"] == ("YA",)
    assert table.resolve(["ABC1", "YA", "TWIN", "YD", "other"]) == (["YA", "YA", "TWIN", "YD", "other"], ["TWIN"])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        *[(text, "MAR1 MARC1 MARCH1") for text in ("1-Mar", "01-Mar-26", "1 march", "Mar-01", "2026-03-01")],
        ("2026-09-02 00:00:00", "SEP2 SEPT2 SEPTIN2"),
        ("1.Oct", "OCT1"),
        *[(text, "") for text in ("OCT1", "SEP15", "Mar", "1-Foo", "2026-13-01", "MARC-KO", "b0008")],
    ],
)
def test_dates_are_told_from_names(text: str, names: str) -> None:
    assert names_of_date(text) == tuple(names.split())
    genes = Vocabulary.of(["SEPT2", "OCT1"])
    assert genes.suggestion("2-Sep") == " (a spreadsheet made a date of SEPT2)"
    assert genes.suggestion("3-Dec") == " (a spreadsheet made a date of DEC3)"


def test_truncated_files(tmp_path: Path) -> None:
    content = gzip.compress("\n".join(f"orf{i}\tname{i}" for i in range(999)).encode())
    (tmp_path / "names.gz").write_bytes(content[:500])
    for read in (read_gene_list, read_aliases, read_gff):
        with pytest.raises(GraphError, match=r"'names\.gz' cannot be read to its end"):
            read(tmp_path / "names.gz")


@pytest.mark.raw
def test_yeast_aliases(raw: Path) -> None:
    table = read_aliases(raw / "genes" / "strain_orf_common_allele_160425.tsv.gz")
    assert table.resolve(["MAK16", "cdc28-5161", "YBR160W_tsq1649", "YAL025C"]) == (
        ["YAL025C", "YBR160W", "YBR160W", "YAL025C"],
        [],
    )


READERS: dict[str, Callable[[Path], Vocabulary]] = {"sgd_features": read_sgd_features, "sgd_r64_4_1": read_gff}


def test_both_formats_of_a_genome_say_what_its_genes_are_called(tmp_path: Path) -> None:
    write_gene_sets(tmp_path, GENES)
    genome, other = (read(tmp_path / GENE_SETS[name].file.path) for name, read in READERS.items())
    assert (genome.names, genome.aliases, genome.shown) == (other.names, other.aliases, other.shown)
    assert genome.names == tuple(sorted(GENES)), "no tRNA, no pseudogene, no parts of genes"
    for i, gene in enumerate(GENES):
        name = standard_name(gene, GENES)
        forms = [f"A{i}", *((name, name.capitalize(), f"{name.capitalize()}p") if name else ())]
        assert genome.resolve(forms) == ([gene] * len(forms), [])
    assert genome.aliases["ABC1"] == (GENES[1],), "the first gene has it among its aliases"
    assert genome.resolve(["TWIN"]) == (["TWIN"], ["TWIN"])
    assert "" not in genome.aliases


def test_escaped_characters_and_packed_files(tmp_path: Path) -> None:
    path = tmp_path / "genome.gff.gz"
    line = "chrI\tSGD\tgene\t1\t9\t.\t+\t.\tID=YAL001C;Name=YAL001C;gene=TFC3;Alias=TFC3,FUN24%2C%205%27\n"
    path.write_bytes(gzip.compress(line.encode()))
    assert read_gff(path).aliases["FUN24, 5'"] == ("YAL001C",)


COLUMNS = "'file': which column holds the systematic names?"


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (read_gene_list, "YA\nYB bem1\n", "'file', line 2: more than one name\n  got:      'YB bem1'"),
        (read_gene_list, "# none\n", "holds no names"),
        (read_aliases, "", "'file' is empty or begins with an empty line"),
        *[(read_aliases, text, COLUMNS) for text in ("Common\tName\nABC1\tYA\n", "orf\nYA\n")],
        (read_sgd_features, "S1\tORF\tVerified\n", "'file' has no column '3'\n  expected: a number from 0 to 2"),
        (read_sgd_features, "S1\tCDS" + 14 * "\t" + "\n", "holds no genes"),
        (read_gff, "##gff-version 3\n###\n##FASTA\n>chrI\n", "holds no genes"),
        (read_gff, "chrI\tSGD\tgene\t1\t9\t.\t+\t.\tName=YAL001C\n", "line 1: a gene without ID"),
        (read_genome_table, "a,b\n1,2\n", "'file' has no column 'Synonym'\n  expected: a, b"),
    ],
)
def test_files_of_something_else_are_refused(tmp_path: Path, read: Any, text: str, expected: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(GraphError) as caught:
        read(tmp_path / "file")
    assert expected in str(caught.value)


def test_files_of_ones_own_are_read_by_extension(tmp_path: Path) -> None:
    write_gene_sets(tmp_path, GENES)
    (tmp_path / "n.csv").write_text(f"a,b\nABC1,{GENES[0]}\n")
    for name in READERS:
        path = GENE_SETS[name].file.path
        network = NetworkConfig(path="n.csv", columns=["a", "b"])
        cell = build_cell(CellConfig(networks={"net": network}, genes=path, aliases=path), str(tmp_path))
        assert cell.genes.names == tuple(sorted(GENES))
        assert len(cell.edges(gene_relation("net"))) == 2
        assert cell.provenance["genes"]["path"] == path


# The relation between genes with similar neighbours, against the definition.


def by_definition(relations: list[Edges], genes: int, config: SimilarityConfig) -> np.ndarray:
    """[N, N] weight of the edge u → v at [v, u], from dense counts."""
    counts = np.eye(genes)
    for edges in relations:
        for u, v in zip(edges.src, edges.dst, strict=True):
            counts[v, u] += u != v
    weights = np.zeros((genes, genes))
    for v in range(genes):
        cosines = [counts[v] @ counts[u] / np.linalg.norm(counts[v]) / np.linalg.norm(counts[u]) for u in range(genes)]
        others = sorted((u for u in range(genes) if u != v), key=lambda u: (-round(cosines[u], 9), u))
        chosen = others[: config.neighbours]
        total = config.damping + sum(cosines[u] ** config.power for u in chosen)
        for u in chosen:
            weights[v, u] = cosines[u] ** config.power / total
    return weights


@examples(20)
@given(
    genes=st.integers(2, 9),
    seed=st.integers(0, 1000),
    neighbours=st.integers(1, 9),
    power=st.sampled_from([0.5, 1.0, 4.0]),
    block=st.sampled_from([1, 4, 512]),
)
def test_weights_are_shares_of_large_cosines(genes: int, seed: int, neighbours: int, power: float, block: int) -> None:
    rng, config = np.random.default_rng(seed), SimilarityConfig(neighbours, power, damping=0.2)
    relations = [Edges(rng.integers(0, genes, n), rng.integers(0, genes, n)) for n in (0, 3, 15)]
    expected = by_definition(relations, genes, config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "BLOCK", block)
        if not expected.any():
            with pytest.raises(GraphError, match="`key`: no two genes are similar"):
                similar_genes(neighbourhoods(relations, genes), config, "key")
            return
        edges = similar_genes(neighbourhoods(relations, genes), config, "key")
    got = np.zeros((genes, genes))
    assert edges.weight is not None
    got[edges.dst, edges.src] = edges.weight
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert len(edges) == np.count_nonzero(expected)
    assert got.sum(1).max() < 1


def test_bad_configurations_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"`cell.similarity.power` must be positive"):
        CellConfig(model="textbook", similarity=SimilarityConfig(power=0.0)).validate()
    with pytest.raises(GraphError, match="similar_no name"):
        SimilarityConfig(sources={"no name": SimilaritySource(["line"])}).validate()


# Sources, each with a relation of its own.


def cell_with(folder: Path, **source: object) -> CellGraph:
    """Return a cell of five genes in a line with one more source of similarity."""
    (folder / "line.csv").write_text("a,b\nG0,G1\nG1,G2\nG2,G3\nG3,G4\n")
    networks = {"line": NetworkConfig(path="line.csv", columns=["a", "b"])}
    similarity = SimilarityConfig(2, 1.0, 0.5, {"own": SimilaritySource(**source)})  # type: ignore[arg-type]
    return build_cell(CellConfig(networks=networks, similarity=similarity), str(folder))


def test_a_source_of_relations_compares_neighbours_in_these_alone(tmp_path: Path) -> None:
    cell = cell_with(tmp_path, relations=["line"])
    whole, own = cell.edges(gene_relation("similar")), cell.edges(gene_relation("similar_own"))
    np.testing.assert_array_equal(whole.src, own.src)
    np.testing.assert_array_equal(whole.weight, own.weight)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({}, r"`cell.similarity.sources.own` must say what genes are compared by\n  got:      nothing"),
        ({"relations": ["line"], "sets": NetworkConfig(source="go_slim_sgd")}, r"compared by\n  got:      both"),
        ({"sets": NetworkConfig(path="sets.csv", columns=["a", "b"])}, r"own.sets` is no table of genes and sets"),
    ],
)
def test_a_source_that_says_nothing_or_too_much_is_refused(tmp_path: Path, source: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cell_with(tmp_path, **source)


ECOLI = 'Location,Gene,Synonym,Product\n1..2,thrL,b0001,leader\n3..4,adhE,b1241,"aldehyde, alcohol"\n5..6,-,b0003,x\n'


def test_a_name_is_meant_by_another_name_case_or_blanks() -> None:
    aliases = {"TFC3": ("YAL001C",), "Tfc3p": ("YAL001C",), "FUN": ("YAL001C", "YAL002W")}
    genes = Vocabulary(("YAL001C", "YAL002W", "yal 3"), aliases, {"YAL001C": "TFC3"})
    written = ["YAL001C", "yal001c", " TFC 3", "tfc3P", "YAL3", "FUN", "ADE2"]
    assert [genes.find(name) for name in written] == ["YAL001C"] * 4 + ["yal 3", "FUN", "ADE2"]
    assert (genes.standard("YAL001C"), genes.standard("YAL002W")) == ("TFC3", "")

    alike = Vocabulary(("abC", "aBc"))
    assert [alike.find(name) for name in ("abc", "abC")] == ["abc", "abC"], "genes that are spelled alike"
    table = Vocabulary.of_aliases({"ADH1": ("YOL086C",), "Adh1": ("YMR303C",)}, {"YOL086C": "ADH1"})
    assert table.resolve(["adh1"], spelled=True) == (["YOL086C"], [])
    assert table.resolve(["adh1"]) == (["adh1"], [])


def test_the_right_gene_is_suggested_or_none() -> None:
    genes = Vocabulary(("b0002", "b0003", "b0114"), {"thrA": ("b0002",), "aceE": ("b0114",)})
    assert genes.suggestion("thrAA") == " (close: thrA (b0002))"
    assert genes.suggestion("b00002") == " (close: b0002)"
    assert genes.suggestion("b0001") == ""
    assert genes.suggestion("ADE2") == ""


def test_names_of_a_cell_are_saved_and_change_nothing_else(tmp_path: Path) -> None:
    cell = build_cell(CellConfig(model="textbook"))
    assert cell.genes.find("ADHE") == "b1241"
    save_cell(cell, tmp_path / "cell")
    loaded = read_cell(tmp_path / "cell")
    assert loaded.genes.find("adhe") == "b1241"
    assert loaded.genes.standard("b1241") == "adhE"
    assert loaded.titles == cell.titles
    assert loaded.titles["reaction"]["CS"] == "citrate synthase"
    assert loaded.titles["metabolite"]["cit_c"] == "Citrate"
    plain = {**cell.vocabularies, "gene": Vocabulary(cell.genes.names)}
    assert CellGraph.assemble(plain, cell.content).sha256 == cell.sha256


def test_the_catalogue_names_the_genes_of_known_models_and_forms() -> None:
    assert names_of_model("yeast-GEM_9.0.2") == names_of_genes(["YAL001C", "Q0045", "REP1"]) == "sgd_names"
    assert names_of_model("iJO1366") == names_of_genes(["b0001", "s0001"]) == "ecoli_names"
    assert names_of_model("mini") is names_of_model(None) is names_of_genes(["ENSG0001"]) is names_of_genes([]) is None
    for source in GENE_SETS.values():
        assert set(source.models) <= {*MODELS, *SHIPPED}


def test_a_genome_table_has_names_and_locus_tags(tmp_path: Path) -> None:
    file = tmp_path / "genes.csv"
    file.write_text(ECOLI)
    found = read_genome_table(file)
    assert found.resolve(["thrL", "ADHE"], spelled=True) == (["b0001", "b1241"], [])
    assert found.standard("b0001") == "thrL"


def test_the_file_of_the_catalogue_is_used_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = GENE_SETS["ecoli_names"]
    own = replace(source, file=replace(source.file, sha256=None, size=None))
    monkeypatch.setitem(catalogue.GENE_SETS, "ecoli_names", own)
    genes = Vocabulary(("b0001", "b1241"))
    plain, provenance = add_names(genes, [], str(tmp_path))
    assert (plain.find("thrL"), provenance) == ("thrL", {})
    file = tmp_path / f"{source.file.path}.gz"
    file.parent.mkdir()
    with gzip.open(file, "wt") as packed:
        packed.write(ECOLI)
    named, provenance = add_names(genes, [Vocabulary.of_aliases({"mine": ("b0001",)})], str(tmp_path))
    assert [named.find(name) for name in ("thrL", "adhE", "mine")] == ["b0001", "b1241", "b0001"]
    assert (provenance["source"], len(provenance["sha256"])) == ("ecoli_names", 64)
    table, path = named_aliases("ecoli_names", str(tmp_path))
    assert (table.resolve(["B0003"], spelled=True)[0], path) == (["b0003"], file)


def test_a_table_of_strains_is_read_by_the_names_of_a_model(tmp_path: Path) -> None:
    file = tmp_path / "strains.csv"
    file.write_text("gene_1,gene_2,fitness\nadhE,b0008,0.5\nB 1241,TALB,0.7\n")
    config = CsvConfig(
        path=str(file), genes=["gene_1", "gene_2"], phenotypes={"fitness": "fitness"}, aliases="textbook"
    )
    table = load_source(SourceConfig("csv", csv=config))
    assert table.genotypes == [["b1241", "b0008"]]  # one strain, measured twice
    assert len(table.provenance.files) == 2
    assert named_aliases("textbook")[0].resolve(["adhE"])[0] == ["b1241"]
    assert {gene.id for gene in read_model("textbook").genes} == set(named_aliases("textbook")[0])


FOUR = Vocabulary.of(["a", "b", "c", "d"])
NAMES, VECTORS = ["c", "other", "a", "b"], np.array([[3.0, 1.0], [9.0, 9.0], [1.0, 2.0], [2.0, 6.0]])


def read(path: Path) -> np.ndarray:
    return read_vectors(path, FOUR, "KEY")


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.parquet", "x.npz"])
def test_columns_are_standardised_in_any_form(tmp_path: Path, name: str) -> None:
    path, frame = tmp_path / name, pd.DataFrame(VECTORS).assign(gene=NAMES)[["gene", 0, 1]]
    frame.columns = frame.columns.astype(str)
    if name == "x.npz":
        np.savez(path, genes=np.array(NAMES), vectors=VECTORS)
    elif name == "x.parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    known = VECTORS[[2, 3, 0]]
    expected = (known - known.mean(0)) / known.std(0)
    np.testing.assert_allclose(read(path), np.concatenate([expected, np.zeros((1, 2))]), atol=1e-12)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("gene,x\na,1\nb,nan\nc,2\n", r"'x.csv' has numbers that are not finite\n  got:      b"),
        ("gene,x\na,1,2\nb,1,3\nc,2,4\n", r"'x.csv' cannot be read"),
        ("gene,x\na,1\nb,high\nc,2\n", r"'x.csv' cannot be read\n.*\n  expected: a name and equally many numbers"),
        ("gene\na\nb\nc\n", r"'x.csv' has no vector for each name"),
        ("gene,x\na,1\na,2\nb,1\n", r"'x.csv' has names twice\n  got:      a"),
    ],
)
def test_a_table_that_is_not_right_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(content)
    with pytest.raises(GraphError, match=f"`KEY`: {message}"):
        read(path)


def test_an_npz_of_wrong_widths_or_names_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, genes=np.array(["a", "b"]), vectors=np.ones((3, 2)))
    with pytest.raises(GraphError, match=r"no vector for each name\n  got:      2 names and numbers of shape \[3, 2\]"):
        read(path)
    np.savez(path, names=np.array(["a", "b"]))
    with pytest.raises(GraphError, match=r"cannot be read\n.*\n  expected: .* in npz `genes` and `vectors`"):
        read(path)
    with pytest.raises(GraphError, match=r"unknown form of file\n  got:      x.txt\n  expected: .csv, "):
        read(tmp_path / "x.txt")


def test_features_are_standardised_and_missing_nodes_get_the_mean(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("\ufeffgene,length,constant\nc,3,7\n\na,1,7\nother,99,7\n\n")
    found = read_vectors(path, FOUR, "model.features.gene")
    assert found.tolist() == [[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    path.write_text("gene,x,constant\n0012,1,0.1\nNA,2,0.1\n 7E3,3,0.1\n")
    found = read_vectors(path, Vocabulary(("0012", "7E3", "NA")), "model.features.gene")
    np.testing.assert_allclose(found, [[-(1.5**0.5), 0.0], [1.5**0.5, 0.0], [0.0, 0.0]])
    path.write_text("gene,x\nz,1\n")
    message = r"`model.features.gene`: 'x.csv' names no node of the cell graph\n.* e.g. z\n  expected: names such as a"
    with pytest.raises(GraphError, match=message):
        read_vectors(path, FOUR, "model.features.gene")


def test_damaged_tables_are_refused(tmp_path: Path) -> None:
    torn = gzip.compress(b"gene,x\na,1\n")[:-12]
    for name, content in (("x.csv.gz", torn), ("x.csv", b"gene,x\n\xff,1\n")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(GraphError, match=rf"{name}' cannot be read\n  got: .+\n  expected: a name and equally"):
            read(tmp_path / name)
