"""Strain names as the screens write them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from dglcell.data.sources.screen_sga import parse_strain, strain_genes
from dglcell.errors import DataError
from dglcell.graph.vocabulary import AliasTable, read_aliases

NONE = AliasTable.empty()
NAMES = [
    ("YBR188C_sn1898", "ntc20", ("YBR188C",), (True,)),
    ("YAL048C_dma5203", "gem1Δ", ("YAL048C",), (True,)),
    ("YFL034C-B_dma1562", "mob2", ("YFL034C-B",), (True,)),
    ("Q0060_sn3032", "ai3", ("Q0060",), (True,)),
    ("YAL001C_tsq508", "tfc3-g349e", ("YAL001C",), (False,)),
    ("YMR296C_tsa606", "lcb1-10", ("YMR296C",), (False,)),
    ("YBR002C_damp4", "rer2_damp", ("YBR002C",), (False,)),
    ("YDR170C_S5", "sec7-1-supp1", ("YDR170C",), (False,)),
    ("YAL015C+YOL043C_tm72", "ntg1Δ+ntg2Δ", ("YAL015C", "YOL043C"), (True, True)),
    ("YAL015C+YDL227C_tm461", "ntg1Δ+hoΔ", ("YAL015C", "YDL227C"), (True, True)),
    ("YAL015C+YDL227C_tm461", "ntg1\N{INCREMENT}+ho\N{INCREMENT}", ("YAL015C", "YDL227C"), (True, True)),
    ("YBR160W+YDL227C_tsq508", "cdc28-4+hoΔ", ("YBR160W", "YDL227C"), (False, True)),
    ("YAR002W+YBR160W_tm802", "nup60Δ+cdc28-4", ("YAR002W", "YBR160W"), (True, False)),
    (" YAL048C_dma5203 ", "", ("YAL048C",), (True,)),
    ("YAL048C", "", ("YAL048C",), (False,)),
]


@pytest.mark.parametrize(("name", "alleles", "genes", "deleted"), NAMES)
def test_names_tell_genes_and_deletions(
    name: str, alleles: str, genes: tuple[str, ...], deleted: tuple[bool, ...]
) -> None:
    strain = parse_strain(name, alleles, NONE)
    assert (strain.genes, strain.deleted) == (genes, deleted)


@pytest.mark.parametrize(
    ("name", "alleles", "message"),
    [
        ("", "", r"strain '' names no gene\n.*YBR188C_sn1898"),
        ("YAL015C+_tm72", "a+b", r"strain 'YAL015C\+_tm72' names no gene"),
        ("YAL015C+YOL043C_tm72", "ntg1Δ", r"not as many alleles as genes\n.*'ntg1Δ'\n.*ntg1Δ\+hoΔ"),
    ],
)
def test_names_that_cannot_be_read(name: str, alleles: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_strain(name, alleles, NONE)


def test_aliases_come_before_the_name() -> None:
    aliases = AliasTable({"TFC3_sn1": ("YAL001C",), "twice_sn2": ("YAL001C", "YBR001C"), "TFC3": ("YAL001C",)})
    assert parse_strain("TFC3_sn1", "", aliases).genes == ("YAL001C",)
    assert parse_strain("TFC3_dma7", "", aliases).genes == ("YAL001C",)
    with pytest.raises(DataError, match=r"'twice_sn2' stands for several genes(.|\n)*alias table"):
        parse_strain("twice_sn2", "", aliases)


def test_the_marker_counts_in_strains_of_one_gene_only() -> None:
    index: dict[str, int] = {}
    strains = ["YBR160W+YDL227C_tm1", "YDL227C_dma9", "YAR002W+YBR160W_tm2"]
    alleles = {strains[0]: "cdc28-4+hoΔ", strains[2]: "nup60Δ+x1Δ"}
    found = strain_genes(strains, alleles, index, NONE, "YDL227C")
    assert index == {"YBR160W": 0, "YDL227C": 1, "YAR002W": 2}
    assert found.genes.tolist() == [[0, -1], [1, -1], [2, 0]]
    assert found.deleted.tolist() == [False, True, True]
    assert strain_genes(strains[:1], alleles, index, NONE, None).genes.tolist() == [[0, 1]]


@pytest.mark.raw
def test_all_strains_of_the_collection_have_the_gene_of_their_name(raw: Path) -> None:
    path = raw / "genes" / "strain_orf_common_allele_160425.tsv.gz"
    with gzip.open(path, "rt") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    aliases = read_aliases(path)
    for strain, orf, _, allele in rows:
        assert parse_strain(strain, allele, NONE).genes == parse_strain(strain, allele, aliases).genes == (orf,)
    deleted = sum(parse_strain(strain, "", NONE).deleted[0] for strain, *_ in rows)
    assert deleted == 5_376 + 4_757
