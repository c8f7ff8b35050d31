"""The published screens: the real files where they are there, and small files of the same format."""

from __future__ import annotations

import functools
import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dglcell.data.sources import SourceConfig, laboratory, load_source
from dglcell.data.sources.config import LaboratoryConfig
from dglcell.data.sources.laboratory import LABORATORIES, CsvScreen, RawTable, parse_strain
from dglcell.data.store import build_store, format_stats
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError
from dglcell.graph.tables import read_aliases
from dglcell.published.file import PublishedFile
from tests.data.sources import sga_tables as sga
from tests.data.sources.sga_tables import Cell, costanzo, kuzmin, read, text, write_xlsx, write_zip

# Strain names as the screens write them.


NAMES = [
    ("YBR188C_sn1898", "ntc20", {"YBR188C": True}),
    ("YFL034C-B_dma1562", "mob2", {"YFL034C-B": True}),
    ("Q0060_sn3032", "ai3", {"Q0060": True}),
    ("YAL001C_tsq508", "tfc3-g349e", {"YAL001C": False}),
    ("YMR296C_tsa606", "lcb1-10", {"YMR296C": False}),
    ("YBR002C_damp4", "rer2_damp", {"YBR002C": False}),
    ("YDR170C_S5", "sec7-1-supp1", {"YDR170C": False}),
    ("YAL015C+YOL043C_tm72", "ntg1Δ+ntg2Δ", {"YAL015C": True, "YOL043C": True}),
    ("YAL015C+YOL043C_tm72", "ntg1\N{INCREMENT}+ntg2\N{INCREMENT}", {"YAL015C": True, "YOL043C": True}),
    ("YAR002W+YBR160W_tm802", "nup60Δ+cdc28-4", {"YAR002W": True, "YBR160W": False}),
    ("YAL015C+YDL227C_tm461", "ntg1Δ+hoΔ", {"YAL015C": True}),  # the marker counts in strains of one gene only
    ("YBR160W+YDL227C_tsq508", "cdc28-4+hoΔ", {"YBR160W": False}),
    ("YDL227C_dma9", "", {"YDL227C": True}),
    (" YAL048C_dma5203 ", "", {"YAL048C": True}),
    ("YAL048C", "", {"YAL048C": False}),
]


@pytest.mark.parametrize(("name", "alleles", "deleted"), NAMES)
def test_names_tell_genes_and_deletions(name: str, alleles: str, deleted: dict[str, bool]) -> None:
    assert parse_strain(name, alleles) == list(deleted.items())


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
        parse_strain(name, alleles)


@pytest.mark.raw
def test_all_strains_of_the_collection_have_the_gene_of_their_name(raw: Path) -> None:
    path = raw / "genes" / "strain_orf_common_allele_160425.tsv.gz"
    with gzip.open(path, "rt") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    aliases = read_aliases(path)
    for strain, orf, _, allele in rows:
        assert [gene for gene, _ in parse_strain(strain, allele)] == [orf] == list(aliases.aliases[strain])
    deleted = sum(parse_strain(strain, "")[0][1] for strain, *_ in rows)
    assert deleted == 5_376 + 4_757


# Screens published as SGA tables: which rows become which strains.


NAN = np.nan
DI, TRI = "digenic", "trigenic"
A, B, C, D, E, HO = "YAR002W", "YML107C", "YAL048C", "YBR001C", "YBR160W", "YDL227C"
ROWS2018 = [
    kuzmin(f"{A}+{HO}_tm3180", "nup60Δ+hoΔ", f"{C}_dma5203", "gem1Δ", DI, -0.05, 0.2, 0.81, 0.05),
    kuzmin(f"{A}+{HO}_tm3180", "nup60Δ+hoΔ", f"{D}_tsa100", "nth2-5001", DI, -0.02, 0.5, 0.7, 0.03),
    kuzmin(f"{A}+{B}_tm2550", "nup60Δ+pml39Δ", f"{C}_dma5203", "gem1Δ", TRI, -0.1, 0.01, 0.4, 0.02),
    kuzmin(f"{E}+{HO}_tsq508", "cdc28-4+hoΔ", f"{C}_dma5203", "gem1Δ", DI, 0.04, 0.4, 0.72, 0.05),
    kuzmin(f"{E}+{B}_tm801", "cdc28-4+pml39Δ", f"{D}_tsa100", "nth2-5001", TRI, -0.2, 0.001, 0.3, ""),
    kuzmin(f"{A}+{B}_tm2550", "nup60Δ+pml39Δ", f"{A}_dma1", "nup60Δ", TRI, 0.3, 0.2, 0.3, 0.01),
    kuzmin(f"{A}+{HO}_tm3180", "nup60Δ+hoΔ", f"{HO}_dma7", "hoΔ", DI, 0.01, 0.3, 1.0, 0.01),
]


@pytest.fixture
def kuzmin2018(tmp_path: Path) -> Path:
    write_zip(
        tmp_path / "interactions" / "aao1729_data_s1.zip", {"aao1729_data_s1.tsv": text(sga.KUZMIN2018, ROWS2018)}
    )
    return tmp_path


def test_kuzmin2018_by_kind_with_controls_as_double_mutants(kuzmin2018: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = read("kuzmin2018", kuzmin2018, monkeypatch, rows=[7])
    assert table.genotypes == [[A, C], [A, D], [A, B, C], [E, C], [E, B, D], [A, HO]]
    of_p, of_sd = table.of_kind("p_value"), table.of_kind("sd")
    for found, expected in (
        (table.phenotypes["trigenic_interaction"], [NAN, NAN, -0.1, NAN, -0.2, NAN]),
        (table.phenotypes["digenic_interaction"], [-0.05, -0.02, NAN, 0.04, NAN, 0.01]),
        (table.phenotypes["fitness"], [0.81, 0.7, 0.4, 0.72, 0.3, 1.0]),
        (of_p["trigenic_interaction"], [NAN, NAN, 0.01, NAN, 0.001, NAN]),
        (of_p["digenic_interaction"], [0.2, 0.5, NAN, 0.4, NAN, 0.3]),
        (of_sd["fitness"], [0.05, 0.03, 0.02, 0.05, NAN, 0.01]),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    expected_counts = {"rows": 7, "rows_digenic": 4, "rows_trigenic": 3, "rows_with_a_gene_twice": 1}
    assert expected_counts.items() <= table.provenance.counts.items()
    assert table.of_kind("replicates") == {}
    assert set(table.provenance.files) == {"aao1729_data_s1.zip"}
    assert any("10.1126/science.aao1729" in url for url in table.provenance.urls)


CONTROLS = f"{A}+{HO}_tm1", "aΔ+hoΔ"
REFUSED_ROWS = [
    (kuzmin(*CONTROLS, f"{C}_dma1", "c", "quad", 0.1, 0.1, 1, 0.1), r"neither digenic nor trigenic\n.*'quad'"),
    (
        kuzmin(*CONTROLS, f"{C}_dma1", "c", DI, 0.1, 0.1, "o.72", 0.1),
        r"1 fault(.|\n)*line 5: fitness 'o.72' is no number",
    ),
    (kuzmin(*CONTROLS, f"{B}_dma1", "bΔ", DI, "", "", "NaN", ""), r"line 5: no phenotype is measured(.|\n)*drop"),
]


@pytest.mark.parametrize(("row", "message"), REFUSED_ROWS)
def test_rows_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: list[Cell], message: str) -> None:
    monkeypatch.setattr(laboratory, "CHUNK_ROWS", 2)
    (tmp_path / "interactions").mkdir()
    (tmp_path / "interactions" / "aao1729_data_s1.tsv").write_text(text(sga.KUZMIN2018, [*ROWS2018[:3], row]))
    with pytest.raises(DataError, match=message):
        read("kuzmin2018", tmp_path, monkeypatch)
    if "drop" in message:
        table = read("kuzmin2018", tmp_path, monkeypatch, missing="drop")
        assert table.genotypes == [[A, C], [A, D], [A, B, C]]
        assert table.provenance.counts["rows_not_measured"] == 1


TITLE: list[Cell] = ["Table S1. Raw genetic interaction dataset.", *[""] * 11]


def test_kuzmin2020_main_and_pilot_tables_from_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = [
        kuzmin(f"{A}+{B}_tm1", "aΔ+bΔ", f"{C}_dma1", "pre7", TRI, -0.1, 0.01, 0.4, 0.02),
        kuzmin(f"{A}+{HO}_tm2", "aΔ+hoΔ", f"{C}_dma1", "pre7", DI, 0.02, 0.6, 0.9, 0.04),
    ]
    pilot = [
        kuzmin(f"{A}+{B}_tm1", "aΔ+bΔ", f"{C}_dma1", "pre7Δ", TRI, -0.3, 0.02, 0.2, 0.06),
        kuzmin(f"{A}+{B}_tm1", "aΔ+bΔ", f"{D}_dma1", "dΔ", TRI, 0.1, 0.3, 1.0, 0.01),
    ]
    sheets = {
        f"aaz5667-Table-{number}.xlsx": write_xlsx(tmp_path / "x.xlsx", [TITLE, sga.KUZMIN2020, *rows]).read_bytes()
        for number, rows in (("S1", main), ("S3", pilot))
    }
    write_zip(tmp_path / "interactions" / "aaz5667-tables_s1_to_s13.zip", dict(sheets))
    table = read("kuzmin2020", tmp_path, monkeypatch, rows=[2, 2])
    assert table.genotypes == [[A, B, C], [A, C], [A, B, D]]
    np.testing.assert_allclose(table.phenotypes["trigenic_interaction"], [-0.2, NAN, 0.1], rtol=1e-6)
    np.testing.assert_allclose(table.of_kind("sd")["trigenic_interaction"], [0.2 / np.sqrt(2), NAN, NAN], rtol=1e-6)
    np.testing.assert_allclose(table.of_kind("sd")["fitness"], [0.2 / np.sqrt(2), 0.04, 0.01], rtol=1e-6)
    assert table.of_kind("replicates")["trigenic_interaction"].tolist() == [2, 0, 1]
    assert table.of_kind("replicates")["fitness"].tolist() == [2, 1, 1]
    only = read("kuzmin2020", tmp_path, monkeypatch, only=["S3"])
    assert only.genotypes == [[A, B, C], [A, B, D]]


COSTANZO = [
    costanzo(f"{A}_sn1", f"{B}_dma1", "DMA30", -0.2, 0.01, 0.5, 0.02),
    costanzo(f"{B}_sn2", f"{A}_dma2", "DMA30", 0.1, 0.02, 0.9, 0.03),
    costanzo(f"{A}_sn1", f"{C}_dma3", "DMA30", 0.05, 0.3, 1.0, 0.01),
    costanzo(f"{A}_sn1", f"{C}_dma3", "DMA30", 0.05, 0.3, 1.0, 0.01),
    costanzo(f"{A}_sn1", f"{C}_dma3", "DMA26", 0.05, 0.3, 1.0, 0.01),
]
ESSENTIAL = [
    costanzo(f"{E}_tsq1", f"{A}_dma2", "DMA26", 0.0, 0.9, 1.0, 0.01),
    costanzo(f"{A}_sn1", f"{D}_tsa1", "TSA26", -0.1, 0.04, 0.7, 0.05),
    costanzo(f"{A}_sn1", f"{D}_tsa1", "TSA30", -0.3, 0.04, 0.6, 0.05),
    costanzo(f"{D}_tsq9", f"{D}_tsa1", "TSA30", -0.3, 0.04, 0.6, 0.05),
    costanzo(f"{E}_damp1", f"{D}_tsa1", "TSA30", 0.2, 0.04, 0.6, 0.05),
    costanzo(f"{C}_S5", f"{D}_tsa1", "TSA30", 0.2, 0.04, 0.6, 0.05),
]


@pytest.fixture
def costanzo2016(tmp_path: Path) -> Path:
    folder = "Data File S1. Raw genetic interaction datasets: Pair-wise interaction format"
    tables = {"NxN": COSTANZO, "ExN_NxE": ESSENTIAL[:4], "ExE": ESSENTIAL[4:5], "DAmP": ESSENTIAL[5:]}
    members: dict[str, str | bytes] = {
        f"{folder}/SGA_{name}.txt": text(sga.COSTANZO2016, rows) for name, rows in tables.items()
    }
    write_zip(tmp_path / "interactions" / "costanzo2016_pairwise.zip", members)
    return tmp_path


def test_costanzo2016_all_tables(costanzo2016: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = read("costanzo2016", costanzo2016, monkeypatch)
    assert table.genotypes == ALL
    np.testing.assert_allclose(
        table.phenotypes["digenic_interaction"], [-0.05, 0.05, 0.0, -0.2, 0.2, 0.2], rtol=1e-6, atol=1e-8
    )
    # One row of A with C is listed twice; that at 26 °C is another measurement.
    assert table.of_kind("replicates")["digenic_interaction"].tolist() == [2, 2, 1, 2, 1, 1]
    expected = {"rows": 11, "rows_DMA26": 2, "rows_DMA30": 4, "rows_TSA26": 1, "rows_TSA30": 4, "rows_identical": 1}
    expected |= {"rows_with_a_gene_twice": 1, "strains_with_replicates": 3, "genes": 5}
    assert {**expected, "replicate_rows_merged": 3, "strains": 6}.items() <= table.provenance.counts.items()
    told = " ".join(format_stats(build_store(table, costanzo2016 / "store", command="test")).split())
    for piece in (
        "digenic_interaction: 3 strains with 2 to 2 measurements, fitness: 3 strains",
        "licence none stated; supplementary data of the publication",
        "(nothing to compare with)",
    ):
        assert piece in told


ALL = [[A, B], [A, C], [E, A], [A, D], [E, D], [C, D]]


FILTERS: list[tuple[str, dict[str, object], list[list[str]], tuple[str, int]]] = [
    ("kuzmin2018", {"kind": "trigenic"}, [[A, B, C], [E, B, D]], ("rows_of_another_kind", 4)),
    ("kuzmin2018", {"deletions_only": True}, [[A, C], [A, B, C], [A, HO]], ("rows_with_other_alleles", 3)),
    ("costanzo2016", {"where": {"array_type": "TSA26"}}, [[A, D]], ("rows_of_another_array_type", 10)),
    ("costanzo2016", {"deletions_only": True}, [[A, B], [A, C]], ("rows_with_other_alleles", 6)),
    ("costanzo2016", {"only": ["DAmP", "ExE"]}, [[E, D], [C, D]], ("rows", 2)),
]


@pytest.mark.parametrize(("name", "options", "strains", "count"), FILTERS)
def test_rows_are_chosen(
    name: str, options: dict[str, object], strains: list[list[str]], count: tuple[str, int], kuzmin2018: Path,
    costanzo2016: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    table = read(name, kuzmin2018, monkeypatch, **options)  # both are in one folder
    assert table.genotypes == strains
    assert table.provenance.counts[count[0]] == count[1]
    assert set(table.names) == {gene for strain in strains for gene in strain}
    assert ("digenic_interaction" in table.phenotypes) == ("kind" not in options)


# Tables: what is read, however it is packed, and what is refused.


Q, CONTROL = "YAR002W+YML107C_tm2550", "YAR002W+YDL227C_tm3180"
ROWS = [
    kuzmin(CONTROL, "nup60Δ+hoΔ", "YAL048C_dma5203", "gem1Δ", "digenic", -0.05, "2.00E-01", 0.81, 0.05),
    kuzmin("YBR160W+YDL227C_tsq508", "cdc28-4+hoΔ", "YBR001C_tsa100", "nth2'-1", "digenic", -0.02, 0.5, 0.7, ""),
    kuzmin(Q, "nup60Δ+pml39Δ", "YAL048C_dma5203", "gem1Δ", "trigenic", -0.1, 0, 0.4, "NaN"),
]


def located(path: Path, member: str = "", rows: int | None = None) -> RawTable:
    return RawTable(PublishedFile(path.name), member, rows, path=path)


def check(table: RawTable) -> None:
    """It has ``ROWS``."""
    rows = pd.concat(chunk.frame for chunk in table.crosses())
    for place, column in enumerate(["query", "alleles", "array"]):
        assert rows[column].tolist() == [row[place] for row in ROWS]
    assert rows[["kind", "array_type"]].to_numpy().T.tolist() == [["digenic", "digenic", "trigenic"], [""] * 3]
    expected = ([-0.05, -0.02, -0.1], [0.2, 0.5, 0], [0.81, 0.7, 0.4], [0.05, np.nan, np.nan])
    for column, numbers in zip(["score", "p", "fitness", "fitness_sd"], expected, strict=True):
        np.testing.assert_allclose(pd.to_numeric(rows[column], errors="coerce"), numbers, rtol=1e-6)


TEXT, ORDER = text(sga.KUZMIN2018, ROWS), np.random.default_rng(0).permutation(len(sga.KUZMIN2018))


def test_text_plain_gzipped_and_in_an_archive(tmp_path: Path) -> None:
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    check(located(tmp_path / "t.txt.gz", rows=3))
    write_zip(tmp_path / "t.zip", {"__MACOSX/._t.tsv": b"\0", "Data File S1: tables/t.tsv": TEXT, "b.tsv": "x"})
    with pytest.raises(DataError, match=r"holds 0 files called 'c.tsv'"):
        check(located(tmp_path / "t.zip", "c.tsv"))
    check(located(tmp_path / "t.zip", "t.tsv"))
    (tmp_path / "t.tsv").write_text(TEXT.splitlines()[0] + "\n")
    with pytest.raises(DataError, match="one row per cross"):  # also where the number of rows is not known
        check(located(tmp_path / "t.tsv"))


FORMS = {
    "a byte order mark and line ends": "\ufeff" + TEXT.replace("\n", "\r\n"),
    "blank lines at the end": TEXT + "\n\n",
    "no line end at the end": TEXT.removesuffix("\n"),
    "other headers": text(sga.KUZMIN2020, ROWS),
    "commas": TEXT.replace("\t", ","),
    "capitals and blanks in headers": text([f"{name} ".upper() for name in sga.KUZMIN2018], ROWS),
    "another order of columns": text([sga.KUZMIN2018[i] for i in ORDER], [[row[i] for i in ORDER] for row in ROWS]),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    (tmp_path / "t.tsv").write_bytes(FORMS[form].encode())
    for chunk in (200_000, 1, 2):
        monkeypatch.setattr(laboratory, "CHUNK_ROWS", chunk)
        check(located(tmp_path / "t.tsv"))


def test_a_spreadsheet_with_a_title_above_its_header(tmp_path: Path) -> None:
    rows = [[float(cell) if cell in ("2.00E-01", 0) else cell for cell in row] for row in ROWS]
    path = write_xlsx(tmp_path / "t.xlsx", [TITLE, sga.KUZMIN2020, *rows])
    check(located(path))
    write_zip(tmp_path / "t.zip", {"tables/t.xlsx": path.read_bytes()})
    check(located(tmp_path / "t.zip", "t.xlsx"))
    (tmp_path / "c.xlsx").write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"'c.xlsx' cannot be read to its end\n.*\n.*copy or download"):
        check(located(tmp_path / "c.xlsx"))
    with pytest.raises(DataError, match=r"'n.xlsx' lacks columns(.|\n)*query strain id"):
        check(located(write_xlsx(tmp_path / "n.xlsx", [TITLE, ["a", "b"], ["c", 1.0]])))


LINES = TEXT.splitlines(keepends=True)
PACKED = gzip.compress(text(sga.KUZMIN2018, ROWS * 500).encode())
BROKEN: list[tuple[str | bytes, str]] = [
    (TEXT[:-20], r"'t.tsv', line 4: not as many cells as in the header\n.*got: +7\n.*12\n.*cut off"),
    ("".join([LINES[0], LINES[1], LINES[2].replace("\n", "\t1\n")]), r"'t.tsv', line 3: not as many cells"),
    (TEXT.replace("P-value", "p"), r"'t.tsv' lacks columns\n(.|\n)*besides: p-value"),
    (LINES[0], r"does not have the rows that were published(.|\n)*0 rows\n.*4 rows"),
    (TEXT, r"does not have the rows that were published.*\n.*3 rows\n.*4 rows"),
    ("", r"'t.tsv' lacks columns"),
    (PACKED[: len(PACKED) // 2], r"t.tsv.gz' cannot be read to its end"),
]


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_damaged_tables_are_refused_by_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = tmp_path / ("t.tsv" if isinstance(content, str) else "t.tsv.gz")
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError, match=message):
        check(located(path, rows=4))


def test_an_archive_that_is_cut_off(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "t.zip", {"t.tsv": text(sga.KUZMIN2018, ROWS * 500)})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=r"t.zip' is not a whole archive"):
        check(located(path, "t.tsv"))


# Screens as CSV tables.


def small(name: str, content: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Strains:
    """Read a text as the file of a screen."""
    path = folder / LABORATORIES[name].files[0].path
    path.parent.mkdir()
    path.write_bytes(gzip.compress(content.encode()))
    return read(name, folder, monkeypatch)


KUZMIN = """q1,q2,array_orf,kind,score,p,fitness,fitness_sd,query,array
YAL015C,YOL043C,YBL008W,trigenic,0.0034,0.4655,1.037,0.0284,YAL015C+YOL043C_tm72,YBL008W_dma90
YAL015C,YOL043C,YHR191C,trigenic,-0.0042,0.4640,0.9250,0.0414,YAL015C+YOL043C_tm72,YHR191C_tsa323
YAL015C,YOL043C,YHR191C,trigenic,-0.0072,0.4294,0.9260,0.0292,YAL015C+YOL043C_tm72,YHR191C_dma2228
YAL015C,YDL227C,YBL008W,digenic,0.0448,0.2758,0.6058,0.0537,YAL015C+YDL227C_tm461,YBL008W_dma90
"""


def test_kuzmin2020_scores_go_by_kind_and_controls_are_doubles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = small("kuzmin2020_pilot", KUZMIN, tmp_path, monkeypatch)
    both = ["YAL015C", "YOL043C"]
    assert table.genotypes == [[*both, "YBL008W"], [*both, "YHR191C"], ["YAL015C", "YBL008W"]]
    for found, expected in (
        (table.phenotypes["trigenic_interaction"], [0.0034, -0.0057, np.nan]),
        (table.phenotypes["digenic_interaction"], [np.nan, np.nan, 0.0448]),
        (table.phenotypes["fitness"], [1.037, 0.9255, 0.6058]),
        (table.of_kind("p_value")["trigenic_interaction"], [0.4655, np.nan, np.nan]),
        (table.of_kind("sd")["fitness"], [0.0284, 0.001 / np.sqrt(2), 0.0537]),
    ):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert table.provenance.counts["rows_kind_trigenic"] == 3


def test_tong2004_either_direction_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "query,array,interact,recip\nYCR009C,YAL013W,1,True\nYCL016C,YCL061C,2,True\nYMR263W,YML009C,0,False\n"
        "YML009C,YMR263W,0,False\n"
    )
    table = small("tong2004_tested_pairs", text, tmp_path, monkeypatch)
    assert table.phenotypes["synthetic_lethality"].tolist() == [1.0, 1.0, 0.0]
    assert table.provenance.counts["rows_listed_before"] == 1
    assert table.of_kind("sd") == {}


def test_costanzo2016_pairs_of_both_terms_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "gene_a,gene_b,epsilon,go_term\nYLR035C,YML060W,0.0447,GO:0006281\nYER142C,YHL006C,0.0094,GO:0006281\n"
        "YML060W,YLR035C,0.0447,GO:0000790\n"
    )
    table = small("costanzo2016_two_go_terms", text, tmp_path, monkeypatch)
    np.testing.assert_allclose(table.phenotypes["digenic_interaction"], [0.0447, 0.0094], atol=1e-7)
    assert table.provenance.counts["rows_go_term_GO:0006281"] == 2


def test_another_file_under_the_same_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "interactions" / "collins2007_emap.csv.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b"gene_a,gene_b,s_score\nA,B,1\n"))
    message = r"is not the file it should be\n.*sha256(.|\n)*0a916087(.|\n)*remove it"
    with pytest.raises(DataError, match=message):
        load_source(SourceConfig("collins2007"), str(tmp_path))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("kuzmin2018", {"kind": "quadrigenic"}, r"kind` is unknown\n.*quadrigenic\n.*null, digenic, trigenic"),
        ("collins2007", {"kind": "digenic"}, "kind` does not apply to 'collins2007'"),
        ("kuzmin2020_pilot", {"deletions_only": True}, "deletions_only` does not apply to 'kuzmin2020_pilot'"),
        ("kuzmin2018", {"where": {"a": "digenic"}}, r"where` does not apply to 'kuzmin2018' .*\n.*a\n.*among kind"),
        ("kuzmin2018", {"where": {"array_type": "DMA30"}}, "where` does not apply to 'kuzmin2018'"),
        ("costanzo2016", {"kind": "trigenic"}, "kind` does not apply to 'costanzo2016'"),
    ],
)
def test_wrong_keys_are_refused(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"`data.source.laboratory.{message}"):
        SourceConfig(name=name, laboratory=LaboratoryConfig(**options)).validate()  # type: ignore[arg-type]


BY_HAND = [name for name, screen in LABORATORIES.items() if isinstance(screen.reader, CsvScreen)]

EXPECTED = {
    # name: strains by number of deletions, genes, phenotypes with their number of values
    "collins2007": ([0, 0, 138_391], 683, {"s_score": 138_391}),
    "costanzo2016_two_go_terms": ([0, 0, 13_643], 259, {"digenic_interaction": 13_643}),
    "kuzmin2020_pilot": (
        [0, 0, 5_821, 3_683],
        1_211,
        {"trigenic_interaction": 3_683, "digenic_interaction": 5_821, "fitness": 9_504},
    ),
    "tong2004_tested_pairs": ([0, 0, 607_353], 4_668, {"synthetic_lethality": 607_353}),
}


@functools.cache
def real(name: str, raw: Path) -> Strains:
    """Read a screen from the real file."""
    return load_source(SourceConfig(name=name), str(raw))


@pytest.mark.raw
@pytest.mark.parametrize("name", BY_HAND)
def test_real_file(name: str, raw: Path) -> None:
    table = real(name, raw)
    sizes, genes, phenotypes = EXPECTED[name]
    assert np.bincount(table.num_deletions).tolist() == sizes
    assert len(table.names) == genes
    assert {key: int(np.isfinite(values).sum()) for key, values in table.phenotypes.items()} == phenotypes
    counts = table.provenance.counts
    assert counts["rows"] + counts.get("rows_listed_before", 0) == LABORATORIES[name].tables["all"].rows
    assert table.provenance.citation


@pytest.mark.raw
def test_declared_hashes_are_those_of_the_raw_folder(raw: Path) -> None:
    listed = dict(reversed(line.split()) for line in (raw / "SHA256SUMS").read_text().splitlines())
    for name in BY_HAND:
        file = LABORATORIES[name].files[0]
        file = file.part or file
        assert listed[file.path] == file.sha256
