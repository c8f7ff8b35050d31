"""Other names of genes: standard names, aliases, spellings, and those of a metabolic model."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from dglcell.data.sources.config import CsvConfig
from dglcell.data.sources.csv_table import load_csv
from dglcell.errors import GraphError
from dglcell.graph import names as names_module
from dglcell.graph.catalogue import GENE_SETS, MODELS
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.cell_files import read_cell, save_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.model_files import SHIPPED, read_model
from dglcell.graph.names import add_names, named_aliases, names_of_genes, names_of_model
from dglcell.graph.vocabulary import AliasTable, Vocabulary, read_genome_table

ECOLI = 'Location,Gene,Synonym,Product\n1..2,thrL,b0001,leader\n3..4,adhE,b1241,"aldehyde, alcohol"\n5..6,-,b0003,x\n'


def test_a_name_is_meant_by_another_name_case_or_blanks() -> None:
    others = AliasTable(
        {"TFC3": ("YAL001C",), "Tfc3p": ("YAL001C",), "FUN": ("YAL001C", "YAL002W")}, {"YAL001C": "TFC3"}
    )
    genes = Vocabulary(("YAL001C", "YAL002W", "yal 3"), others)
    written = ["YAL001C", "yal001c", " TFC 3", "tfc3P", "YAL3", "FUN", "ADE2"]
    assert [genes.find(name) for name in written] == ["YAL001C"] * 4 + ["yal 3", "FUN", "ADE2"]
    assert (genes.standard("YAL001C"), genes.standard("YAL002W")) == ("TFC3", "")


def test_two_genes_that_are_spelled_alike_are_not_guessed() -> None:
    genes = Vocabulary(("abC", "aBc"))
    assert genes.find("abc") == "abc"
    assert genes.find("abC") == "abC"


def test_a_standard_name_stands_for_its_gene_however_it_is_spelled() -> None:
    table = AliasTable({"ADH1": ("YOL086C",), "Adh1": ("YMR303C",)}, {"YOL086C": "ADH1"})
    assert table.resolve(["adh1"], spelled=True) == (["YOL086C"], [])
    assert table.resolve(["adh1"]) == (["adh1"], [])


def test_the_right_gene_is_suggested_or_none() -> None:
    genes = Vocabulary(("b0002", "b0003", "b0114"), AliasTable({"thrA": ("b0002",), "aceE": ("b0114",)}))
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
    assert found.others.resolve(["thrL", "ADHE"], spelled=True) == (["b0001", "b1241"], [])
    assert found.others.standard["b0001"] == "thrL"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(
        GraphError, match=r"is no protein table\n  got:      a, b\n  expected: columns Gene and Synonym"
    ):
        read_genome_table(file)


def test_the_file_of_the_catalogue_is_used_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = GENE_SETS["ecoli_names"]
    own = replace(source, file=replace(source.file, sha256=None, size=None))
    monkeypatch.setitem(names_module.GENE_SETS, "ecoli_names", own)
    genes = Vocabulary(("b0001", "b1241"))
    plain, provenance = add_names(genes, [], str(tmp_path))
    assert (plain.find("thrL"), provenance) == ("thrL", {})
    file = tmp_path / f"{source.file.path}.gz"
    file.parent.mkdir()
    with gzip.open(file, "wt") as packed:
        packed.write(ECOLI)
    named, provenance = add_names(genes, [AliasTable({"mine": ("b0001",)})], str(tmp_path))
    assert [named.find(name) for name in ("thrL", "adhE", "mine")] == ["b0001", "b1241", "b0001"]
    assert (provenance["source"], len(provenance["sha256"])) == ("ecoli_names", 64)
    table, path = named_aliases("ecoli_names", str(tmp_path))
    assert (table.resolve(["B0003"], table.targets, spelled=True)[0], path) == (["b0003"], file)


def test_a_table_of_strains_is_read_by_the_names_of_a_model(tmp_path: Path) -> None:
    file = tmp_path / "strains.csv"
    file.write_text("gene_1,gene_2,fitness\nadhE,b0008,0.5\nB 1241,TALB,0.7\n")
    config = CsvConfig(
        path=str(file), genes=["gene_1", "gene_2"], phenotypes={"fitness": "fitness"}, aliases="textbook"
    )
    table = load_csv(config)
    assert table.genotypes == [["b1241", "b0008"]]  # one strain, measured twice
    assert len(table.provenance.files) == 2
    assert named_aliases("textbook")[0].resolve(["adhE"])[0] == ["b1241"]
    assert {gene.id for gene in read_model("textbook").genes} == set(named_aliases("textbook")[0].targets)
