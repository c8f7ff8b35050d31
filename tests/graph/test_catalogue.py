"""The catalogue: its entries are sound, and each reads its publisher's format."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dglcell.errors import ConfigError
from dglcell.graph.catalogue import GENE_SETS, MODELS, NETWORKS, NetworkConfig, named_table
from dglcell.graph.cell import WIDTH, CellConfig, build_cell, describe
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import gene_relation
from tests.raw_files import GENES, STRING_CHANNELS, pairs, write_raw_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_raw_folder(tmp_path_factory.mktemp("raw"))


def test_names_and_files_differ() -> None:
    names = [*NETWORKS, *GENE_SETS, *MODELS]
    files = [entry.file.path for entry in (*NETWORKS.values(), *GENE_SETS.values())]
    files += [file.path for file in MODELS.values()]
    assert len(set(names)) == len(names) == len(set(files))


def cell_of(folder: Path, name: str, **keys: object) -> CellGraph:
    """Return a cell of one network alone; files whose hash is declared are named by path."""
    source = NETWORKS[name]
    path = str(folder / source.file.path) if source.file.sha256 or source.file.content else ""
    network = NetworkConfig(source=name, path=path, **keys)  # type: ignore[arg-type]
    return build_cell(
        CellConfig(networks={"net": network}, genes="sgd_features", aliases="sgd_features", unknown="drop"), str(folder)
    )


def named(cell: CellGraph, relation: str) -> set[tuple[str, str]]:
    edges = cell.edges(("gene", relation, "gene"))
    return {(cell.genes.names[a], cell.genes.names[b]) for a, b in zip(edges.src, edges.dst, strict=True)}


BOTH_WAYS = {*pairs(GENES), *((b, a) for a, b in pairs(GENES))}
DIRECTED = set(pairs(GENES))
COMPLEXES = {(a, b) for i, a in enumerate(GENES) for j, b in enumerate(GENES) if a != b and i // 3 == j // 3}
EXPECTED = {
    **dict.fromkeys(("sgd_physical", "biogrid_physical_3_4_156"), BOTH_WAYS),
    **dict.fromkeys(("tong2004_interactions", "kuzmin2018_interactions", "pan2006_interactions"), BOTH_WAYS),
    **dict.fromkeys(("sgd2007_negative_interactions", "sgd2007_rescues", "string12_0_physical"), BOTH_WAYS),
    "ecoli_k12_neighbours": BOTH_WAYS,
    **dict.fromkeys(("sgd_regulatory", "yeastract"), DIRECTED),
    "tflink": {(GENES[1], target) for target in GENES},
    **dict.fromkeys(("cyc2008_complexes", "go_slim_sgd", "ecoli_k12_families"), COMPLEXES),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_a_network_has_the_pairs_of_its_file(folder: Path, name: str) -> None:
    cell = cell_of(folder, name)
    assert named(cell, "net") == EXPECTED[name]
    assert cell.genes.names == tuple(sorted(GENES))


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in EXPECTED])
def test_channels_are_relations(folder: Path, name: str) -> None:
    relations = {relation[1].removeprefix("net_") for relation in cell_of(folder, name).relations}
    assert relations == set(STRING_CHANNELS)


def filled(**keys: object) -> NetworkConfig:
    return named_table(NetworkConfig(**keys), "cell.networks.net").table  # type: ignore[arg-type]


def test_keys_of_ones_own_come_before_those_of_the_source() -> None:
    assert filled(source="string12_0", channels=["fusion"]).channels == ["fusion"]
    assert filled(source="string12_0").channels == list(STRING_CHANNELS)
    weighted = filled(source="string12_0", weight="combined_score", min_weight=900)
    assert (weighted.channels, weighted.weight, weighted.min_weight) == ([], "combined_score", 900)
    assert filled(source="sgd_regulatory").directed is True
    assert filled(source="tflink", quotes=True).quotes is True
    assert filled(path="n.csv", columns=["a", "b"]) == NetworkConfig(path="n.csv", columns=["a", "b"])


def test_hashes_are_those_of_the_source_unless_path_or_hash_is_ones_own() -> None:
    declared = NETWORKS["yeastract"].file
    for keys, file in (
        ({}, declared),
        ({"sha256": "AB" * 32}, replace(declared, sha256="ab" * 32, size=None, content=None)),
    ):
        assert named_table(NetworkConfig(source="yeastract", **keys), "k").file == file  # type: ignore[arg-type]
    own = named_table(NetworkConfig(source="yeastract", path="mine.csv"), "k")
    assert (own.file.path, own.file.sha256, own.file.urls) == ("mine.csv", None, ())
    assert (own.table.path, own.table.sha256, own.table.columns) == ("mine.csv", None, ["tf", "target"])


def test_sources_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"`cell.networks.net.source` is unknown[\s\S]*did you mean string12_0"):
        CellConfig(networks={"net": NetworkConfig(source="string12")}).validate()
    config = CellConfig(networks={"tflink": NetworkConfig(source="tflink")})
    with pytest.raises(ConfigError, match=r"tflink` calls genes by their standard names[\s\S]*aliases: sgd_r64_4_1`"):
        config.validate()
    replace(config, aliases="sgd_features").validate()


def test_a_missing_file_says_where_it_can_be_had(tmp_path: Path) -> None:
    config = CellConfig(networks={"string12_0": NetworkConfig(source="string12_0")})
    with pytest.raises(Exception, match=r"4932\.protein\.links\.detailed\.v12\.0\.txt\.gz' not found") as caught:
        build_cell(config, str(tmp_path))
    assert "https://stringdb-downloads.org/download/protein.links.detailed.v12.0/" in str(caught.value)
    assert "dglcell data fetch --all" in str(caught.value)


@pytest.mark.raw
def test_a_real_network(raw: Path) -> None:
    cell = build_cell(CellConfig(networks={"net": NetworkConfig(source="cyc2008_complexes")}), str(raw))
    assert (len(cell.genes), len(cell.edges(gene_relation("net")))) == (1_627, 22_510)
    assert cell.provenance["networks"]["net"]["trust"] == "declared"


def test_a_small_cell_in_words(write: Callable[[str, str], str], tmp_path: Path) -> None:
    path = write("n.csv", "a,b\nYA,YB\nYA,YC\nYD,YD\nYX,YA\n")
    network = NetworkConfig(path=path, columns=["a", "b"], unknown="drop")
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
  net            5        4        4   1.2    2  YA       20.000%      1

made of
  genes  g.txt; sha256 {digest("g.txt")} (nothing to compare with)
  net    n.csv; sha256 {digest("n.csv")} (nothing to compare with)

left out by `unknown: drop`
  net: names 1 (YX), rows 1

2 of 5 genes are touched by no relation (self-loops aside)
  YD, YE
"""
    )


def test_a_cell_fits_the_terminal_and_tells_sources_licences_and_hashes(tmp_path: Path) -> None:
    folder = str(write_raw_folder(tmp_path, GENES))
    networks = {name: NetworkConfig(source=name) for name in ("tflink", "sgd_physical")}
    derived = ["shares_complex", "isoenzyme", "metabolic_neighbour"]
    config = CellConfig("textbook", networks=networks, derived=derived, aliases="sgd_features", unknown="drop")
    cell = build_cell(config, folder)
    text = describe(cell)
    assert text == describe(build_cell(config, folder))
    assert cell.provenance["networks"]["sgd_physical"]["url"].startswith("https://sgd-archive.yeastgenome.org/")
    for words in (
        "171 with genes",
        "* edges carry fixed weights",
        "  model         textbook; sha256 ",
        " (shipped with cobra)",
        "  sgd_physical  sgd_physical, interaction_data.tab; CC BY 4.0 (SGD); sha256 ",
        "  aliases       sgd_features, SGD_features.tab; CC BY 4.0 (SGD); sha256 ",
        "every gene is touched by a relation",
    ):
        assert words in text
    assert " ".join(text.split()).count("(nothing to compare with)") == 3
    assert max(map(len, text.splitlines())) <= WIDTH
