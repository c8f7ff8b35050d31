from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from dglcell.errors import GraphError
from dglcell.graph.vocabulary import read_aliases, read_gene_list

Write = Callable[[str, str], str]


def test_gene_list(write: Write) -> None:
    path = write("genes.txt.gz", "# genes\nYB\n\n YA  # first\nYB\n")
    assert read_gene_list(Path(path)).names == ("YA", "YB")


def test_gene_list_with_several_columns(write: Write) -> None:
    with pytest.raises(GraphError, match=r"'genes\.txt', line 2: more than one name\n.*'YB bem1'"):
        read_gene_list(Path(write("genes.txt", "YA\nYB bem1\n")))


def test_gene_list_without_names(write: Write) -> None:
    with pytest.raises(GraphError, match="holds no names"):
        read_gene_list(Path(write("genes.txt", "# none\n")))


@pytest.mark.parametrize("mark", ["\t", ","])
def test_aliases(write: Write, mark: str) -> None:
    rows = ["Strain,Orf,Common", "YA_sn1,YA,ABC1", "YA_sn2,YA,ABC1", "YB_sn3,YB,TWIN", "YC_sn4,YC,TWIN", "YD_sn5,YD,YD"]
    table = read_aliases(Path(write("aliases.tsv", "\n".join(rows).replace(",", mark))))
    assert not {"YA", "YD", ""} & set(table.systematic)
    assert table.systematic["YA_sn2"] == table.systematic["ABC1"] == ("YA",)
    assert table.resolve(["ABC1", "YA", "TWIN", "YD", "other"]) == (["YA", "YA", "TWIN", "YD", "other"], ["TWIN"])


@pytest.mark.parametrize("text", ["", "Common\tName\nABC1\tYA\n", "orf\nYA\n"])
def test_alias_table_without_its_columns(write: Write, text: str) -> None:
    with pytest.raises(GraphError, match=r"'a\.tsv': which column holds the systematic names\?"):
        read_aliases(Path(write("a.tsv", text)))


def test_truncated_files(tmp_path: Path) -> None:
    content = gzip.compress("\n".join(f"orf{i}\tname{i}" for i in range(999)).encode())
    (tmp_path / "names.gz").write_bytes(content[:500])
    for read in (read_gene_list, read_aliases):
        with pytest.raises(GraphError, match=r"'names\.gz' cannot be read to its end"):
            read(tmp_path / "names.gz")


@pytest.mark.raw
def test_yeast_aliases(raw: Path) -> None:
    table = read_aliases(raw / "genes" / "strain_orf_common_allele_160425.tsv.gz")
    assert table.resolve(["MAK16", "cdc28-5161", "YBR160W_tsq1649", "YAL025C"]) == (
        ["YAL025C", "YBR160W", "YBR160W", "YAL025C"],
        [],
    )
