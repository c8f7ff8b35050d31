"""The published screens: the real files where they are there, and small files of the same format."""

from __future__ import annotations

import functools
import gzip
from pathlib import Path

import numpy as np
import pytest

from dglcell.data.sources import SourceConfig, load_source
from dglcell.data.sources.config import LaboratoryConfig
from dglcell.data.sources.laboratory import LABORATORIES, CsvScreen
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError
from tests.data.sources.sga_tables import read


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


def test_kuzmin2020_scores_go_by_kind_and_controls_are_double_mutants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
