"""Screens published as a matrix of scores: R data and text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dglcell.data.table import StrainTable
from dglcell.errors import DataError, MissingDependencyError
from tests.data.sources.sga_tables import read
from tests.data.strain_tables import gene_lists

NAN = np.nan
GENES = ["YAL001C", "YBR002W", "YCL003C"]
SCORES = np.array([[9.0, -1.5, NAN], [-1.5, NAN, 2.0], [0.5, 2.5, NAN]])


def check(table: StrainTable) -> None:
    a, b, c = GENES
    assert gene_lists(table) == [[a, b], [b, c], [c, a]]
    np.testing.assert_allclose(table.phenotypes["s_score"], [-1.5, 2.25, 0.5])
    np.testing.assert_allclose(table.sds["s_score"], [NAN, 0.5 / np.sqrt(2), NAN], rtol=1e-6)
    assert table.replicates["s_score"].tolist() == [1, 2, 1]
    assert table.provenance.counts["rows"] == 5
    assert table.provenance.counts["rows_identical"] == 1


def write_text(folder: Path, above: list[str], beside: list[str], cells: list[list[str]]) -> None:
    """As ``write.table(m, file, sep="\\t", quote=FALSE, col.names=NA)`` of R writes it."""
    lines = ["\t".join(["", *above]), *("\t".join([name, *row]) for name, row in zip(beside, cells, strict=True))]
    (folder / "interactions").mkdir()
    (folder / "interactions" / "gi2005.tsv").write_text("\n".join(lines) + "\n")


def cells() -> list[list[str]]:
    return [["NA" if np.isnan(score) else str(score) for score in row] for row in SCORES]


def test_a_text_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path, GENES, GENES, cells())
    check(read("schuldiner2005", tmp_path, monkeypatch))


@pytest.mark.parametrize(
    ("above", "beside", "cell", "message"),
    [
        (GENES, [*GENES[:2], "YDR004W"], "1", r"'gi2005.tsv' is no matrix between genes\n.*3 rows and 3 columns"),
        ([*GENES[:2], GENES[0]], [*GENES[:2], GENES[0]], "1", r"'gi2005.tsv' is no matrix between genes"),
        (GENES, GENES, "high", r"'gi2005.tsv' holds something that is no number\n.*high"),
    ],
)
def test_what_is_no_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, above: list[str], beside: list[str], cell: str, message: str
) -> None:
    content = cells()
    content[0][1] = cell
    write_text(tmp_path, above, beside, content)
    with pytest.raises(DataError, match=message):
        read("schuldiner2005", tmp_path, monkeypatch)


class NamedMatrix:
    """A matrix with names of rows and columns, as R holds it."""

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores


def write_rda(path: Path, content: dict[str, Any]) -> None:
    """As ``save(gi2005, file=…)`` of R writes it."""
    rdata = pytest.importorskip("rdata")
    from rdata.conversion.to_r import DEFAULT_CLASS_MAP, build_r_object
    from rdata.parser import RObjectType

    def matrix(value: NamedMatrix, converter: Any) -> Any:
        names = [np.array(GENES), np.array(GENES)]
        shape = np.array(value.scores.shape, dtype=np.int32)
        attributes = converter.convert_to_r_attributes({"dim": shape, "dimnames": names})
        return build_r_object(RObjectType.REAL, value=value.scores.ravel("F"), attributes=attributes)

    path.parent.mkdir()
    rdata.write_rda(path, content, constructor_dict={**DEFAULT_CLASS_MAP, NamedMatrix: matrix})


def test_r_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rda(tmp_path / "interactions" / "gi2005.rda", {"gi2005": NamedMatrix(SCORES)})
    check(read("schuldiner2005", tmp_path, monkeypatch))


def test_r_data_of_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rda(tmp_path / "interactions" / "gi2005.rda", {"gi2007": np.array([1.0])})
    with pytest.raises(DataError, match=r"'gi2005.rda' holds no matrix 'gi2005' with names\n.*gi2007"):
        read("schuldiner2005", tmp_path, monkeypatch)


def test_r_data_that_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "interactions" / "gi2005.rda"
    write_rda(path, {"gi2005": NamedMatrix(SCORES)})
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(DataError, match=r"'gi2005.rda' cannot be read as R data"):
        read("schuldiner2005", tmp_path, monkeypatch)


def test_r_data_without_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "interactions").mkdir()
    (tmp_path / "interactions" / "gi2005.rda").write_bytes(b"RDX3")
    monkeypatch.setitem(sys.modules, "rdata", None)
    with pytest.raises(MissingDependencyError, match=r"'gi2005.rda' needs rdata\n.*write.table\(gi2005, 'gi2005.tsv'"):
        read("schuldiner2005", tmp_path, monkeypatch)
