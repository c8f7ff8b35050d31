from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from dglcell.errors import GraphError
from dglcell.graph.catalogue import GENE_SETS, NetworkConfig
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.schema import gene_relation
from dglcell.graph.vocabulary import GeneSet, read_gff, read_sgd_features
from tests.raw_files import GENES, standard_name, write_gene_sets

READERS: dict[str, Callable[[Path], GeneSet]] = {"sgd_features": read_sgd_features, "sgd_r64_4_1": read_gff}


@pytest.fixture(params=READERS)
def genome(request: pytest.FixtureRequest, tmp_path: Path) -> GeneSet:
    write_gene_sets(tmp_path, GENES)
    return READERS[request.param](tmp_path / GENE_SETS[request.param].file.path)


def test_genes_are_the_open_reading_frames(genome: GeneSet) -> None:
    assert genome.genes.names == tuple(sorted(GENES)), "no tRNA, no pseudogene, no parts of genes"


def test_names_in_every_form_lead_to_systematic_names(genome: GeneSet) -> None:
    for i, gene in enumerate(GENES):
        assert genome.aliases.resolve([f"A{i}"]) == ([gene], [])
        name = standard_name(gene, GENES)
        for form in (name, name.capitalize(), f"{name.capitalize()}p") if name else ():
            assert genome.aliases.resolve([form]) == ([gene], [])


def test_a_standard_name_comes_before_an_alias_and_twins_are_ambiguous(genome: GeneSet) -> None:
    assert genome.aliases.systematic["ABC1"] == (GENES[1],), "the first gene has it among its aliases"
    assert genome.aliases.resolve(["TWIN"]) == (["TWIN"], ["TWIN"])
    assert "" not in genome.aliases.systematic


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    write_gene_sets(tmp_path, GENES)
    read = [READERS[name](tmp_path / GENE_SETS[name].file.path) for name in READERS]
    assert read[0] == read[1]


def test_escaped_characters_and_packed_files(tmp_path: Path) -> None:
    path = tmp_path / "genome.gff.gz"
    line = "chrI\tSGD\tgene\t1\t9\t.\t+\t.\tID=YAL001C;Name=YAL001C;gene=TFC3;Alias=TFC3,FUN24%2C%205%27\n"
    path.write_bytes(gzip.compress(line.encode()))
    assert read_gff(path).aliases.systematic["FUN24, 5'"] == ("YAL001C",)


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


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (read_sgd_features, "S1\tORF\tVerified\n", "line 1: not a row of SGD_features.tab"),
        (read_sgd_features, "<html>not found</html>\n", "line 1: not a row of SGD_features.tab"),
        (read_sgd_features, "\n", "holds no genes"),
        (read_gff, "##gff-version 3\n###\n##FASTA\n>chrI\n", "holds no genes"),
        (read_gff, "chrI\tSGD\tgene\t1\t9\t.\t+\t.\tName=YAL001C\n", "line 1: a gene without ID"),
    ],
)
def test_something_else_is_refused(tmp_path: Path, read: Callable[[Path], GeneSet], text: str, expected: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(GraphError) as caught:
        read(tmp_path / "file")
    assert expected in str(caught.value)


def test_truncated_files(tmp_path: Path) -> None:
    path = tmp_path / "genome.gff.gz"
    path.write_bytes(gzip.compress(b"##gff-version 3\n" * 999)[:40])
    with pytest.raises(GraphError, match="cannot be read to its end"):
        read_gff(path)
