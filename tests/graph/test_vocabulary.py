"""Names of nodes: vocabularies, lists of names, aliases, the genes of a genome."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.errors import GraphError
from dglcell.graph.catalogue import GENE_SETS, NetworkConfig
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.schema import gene_relation
from dglcell.graph.tables import read_aliases, read_gene_list, read_genome_table, read_gff, read_sgd_features
from dglcell.graph.vocabulary import Vocabulary, names_of_date
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


def test_aliases_resolve_unless_ambiguous_or_already_known() -> None:
    aliases = Vocabulary.of_aliases({"TFC3": ("YAL001C",), "DUP1": ("YA", "YB"), "YAL002W": ("YX",)})
    known = Vocabulary.of(["YAL001C", "YAL002W"])
    assert aliases.resolve(["TFC3", "DUP1", "YAL002W", "other"], known) == (
        ["YAL001C", "DUP1", "YAL002W", "other"],
        ["DUP1"],
    )


Write = Callable[[str, str], str]


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
