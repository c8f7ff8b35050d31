from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from dglcell.graph.catalogue import NetworkConfig
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.describe import WIDTH, describe
from tests.raw_files import GENES, write_raw_folder


def test_a_small_cell_in_words(write: Callable[[str, str], str], tmp_path: Path) -> None:
    network = NetworkConfig(
        path=write("n.csv", "a,b,w\nYA,YB,2\nYA,YC,3\nYD,YD,1\nYX,YA,1\n"),
        columns=["a", "b"],
        weight="w",
        use_weights=True,
        unknown="drop",
    )
    cell = build_cell(CellConfig(networks={"net": network}, genes=write("g.txt", "YA\nYB\nYC\nYD\nYE\n")))

    def digest(name: str) -> str:
        return hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()[:16]

    assert (
        describe(cell)
        == f"""\
Cell graph {cell.sha256[:16]}

nodes  count
gene       5

relations    edges  sources  targets  mean  max  busiest  density  loops
gene → gene
  net*           5        4        4   1.2    2  YA       20.000%      1
* edges carry fixed weights

made of
  genes  g.txt; sha256 {digest("g.txt")} (nothing to compare with)
  net    n.csv; sha256 {digest("n.csv")} (nothing to compare with)

left out by `unknown: drop`
  net: names 1 (YX), rows 1

2 of 5 genes are touched by no relation (self-loops aside)
  YD, YE
"""
    )


def test_textbook_fits_the_terminal_and_is_deterministic() -> None:
    config = CellConfig(model="textbook", derived=["shares_complex", "isoenzyme", "metabolic_neighbour"])
    text = describe(build_cell(config), names=True)
    assert text == describe(build_cell(config), names=True)
    assert max(len(line) for line in text.splitlines()) <= WIDTH
    assert "171 with genes" in text
    assert "every gene is touched by a relation" in text
    assert "all genes\n  b0008, b0114," in text


def test_sources_licences_and_hashes_are_told(tmp_path: Path) -> None:
    folder = write_raw_folder(tmp_path, GENES)
    networks = {name: NetworkConfig(source=name) for name in ("tflink", "sgd_physical")}
    config = CellConfig(model="textbook", networks=networks, genes="union", aliases="sgd_features", unknown="drop")
    text = describe(build_cell(config, str(folder)))
    assert "  model         textbook; sha256 " in text
    assert " (shipped with cobra)" in text
    assert "  sgd_physical  sgd_physical, interaction_data.tab; CC BY 4.0 (SGD); sha256 " in text
    assert "  aliases       sgd_features, SGD_features.tab; CC BY 4.0 (SGD); sha256 " in text
    assert max(len(line) for line in text.splitlines()) <= WIDTH
