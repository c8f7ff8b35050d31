"""Edge tables, the networks that come out of them, and the catalogue of public ones."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.errors import ConfigError, DataError, DglcellError, GraphError
from dglcell.graph.catalogue import GENE_SETS, MODELS, NETWORKS, NetworkConfig, named_table
from dglcell.graph.cell import WIDTH, CellConfig, build_cell, describe
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.networks import network_edges, pairs_within_groups, read_network
from dglcell.graph.schema import Edges, gene_relation
from dglcell.graph.vocabulary import Vocabulary
from dglcell.published.file import FILES
from tests.examples import examples
from tests.graph.conftest import Write
from tests.raw_files import GENES as RAW_GENES
from tests.raw_files import STRING_CHANNELS, pairs, write_raw_folder


@examples(25)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=20))
def test_pairs_within_groups_are_all_combinations(rows: list[tuple[int, int]]) -> None:
    members, groups = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
    expected = [
        pair
        for group in sorted(set(groups.tolist()))
        for pair in itertools.combinations(sorted({m for m, g in rows if g == group}), 2)
    ]
    first, second = pairs_within_groups(members, groups)
    assert sorted(zip(first.tolist(), second.tolist(), strict=True)) == sorted(expected)


GENES = Vocabulary.of(["YA", "YB", "YC", "YD"])


def relations(
    path: str, *, aliases: Vocabulary | None = None, symmetrise: bool = True, self_loops: bool = False, **keys: Any
) -> tuple[dict[str, Edges], dict[str, Any]]:
    config = NetworkConfig(path=path, **({"columns": ["a", "b"]} | keys))
    cell = CellConfig(networks={"net": config})
    cell.validate()
    network = read_network("net", cell.tables()["net"], aliases or Vocabulary(), GENES)
    return network_edges(network, GENES, "cell.networks.net", symmetrise=symmetrise, self_loops=self_loops)


def named(edges: Edges) -> set[str]:
    pairs = [f"{GENES.names[a]}>{GENES.names[b]}" for a, b in zip(edges.src, edges.dst, strict=True)]
    assert len(set(pairs)) == len(pairs)
    return set(pairs)


def test_undirected_pairs_go_both_ways_and_repeats_merge(write: Write) -> None:
    path = write("n.csv", "a,b\nYA,YB\nYB,YA\nYA,YB\nYC,YC\n")
    edges, provenance = relations(path)
    assert named(edges["net"]) == {"YA>YB", "YB>YA", "YC>YC"}
    assert provenance["relations"]["net"] == {"rows": 4, "dropped": 0, "merged": 2, "self_pairs": 1}
    right = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    assert provenance["sha256"] == relations(path, sha256=right.upper())[1]["sha256"] == right


ONE_WAY, DIRECTED = {"symmetrise": False}, {"directed": True}
TWICE, SCORES = "a,b\nYB,YA\nYA,YB\nYA,YC\n", "a,b,fusion,database\nYA,YB,0,900\nYC,YD,10,400\n"
READ: list[tuple[str, str, dict[str, Any], str | dict[str, str]]] = [
    ("n.tsv", "x\tb\ta\n1\tYB\tYA\n", DIRECTED, "YA>YB"),
    ("n.csv.gz", "x;b;a\n1;YB;YA\n", DIRECTED, "YA>YB"),
    ("n.txt", "x  b a\n1 YB   YA\n\n", DIRECTED, "YA>YB"),
    ("n.txt", "x b a\n1 YB YA\n", {**DIRECTED, "columns": ["2", "1"], "header": True}, "YA>YB"),
    ("n.txt", "1 YC YD\n2 YB YA\n", {"columns": ["2", "1"], "header": False, "where": {"0": "2"}, **ONE_WAY}, "YA>YB"),
    ("n.csv", '"x","b","a"\n"1,5","YB","YA"\n', DIRECTED, "YA>YB"),
    ("n.csv", "x,b,a\r\n1, YB ,YA\r\n   \r\n", DIRECTED, "YA>YB"),
    ("n.csv", TWICE, ONE_WAY, "YB>YA YA>YC"),
    ("n.csv", TWICE, DIRECTED, "YB>YA YA>YB YA>YC"),
    ("n.csv", TWICE, {**DIRECTED, "columns": ["b", "a"]}, "YA>YB YB>YA YC>YA"),
    ("n.csv", "a,b\nYA,YA\nYA,YB\n", {"self_loops": True}, "YA>YA YB>YB YC>YC YD>YD YA>YB YB>YA"),
    ("n.csv", "a,b,w\nYA,YB,0.5\nYB,YA,0.9\nYC,YD,-2\nYA,YA,7\n", {"weight": "w", "min_weight": 0.6},
     "YA>YB YB>YA YA>YA"),
    ("n.csv", SCORES, {"channels": ["fusion", "database"], **ONE_WAY},
     {"net_fusion": "YC>YD", "net_database": "YA>YB YC>YD"}),
    ("n.csv", SCORES, {"channels": ["database"], "min_weight": 900}, {"net_database": "YA>YB YB>YA"}),
    ("n.tsv", "gene\tcomplex\nYA\tone\nYB\tone\nYC\tone\nYA\ttwo\nYB\ttwo\nYD\tthree\n",
     {"columns": ["gene", "complex"], "layout": "groups", **ONE_WAY}, "YA>YB YA>YC YB>YC"),
    ("n.tsv", 'a\tb\tnote\nYA\tYB\t"unfinished\nYC\tYD\tnothing\n', {"quotes": False, **ONE_WAY}, "YA>YB YC>YD"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "keys", "expected"), READ)
def test_tables_are_read_by_what_their_columns_mean(
    write: Write, name: str, text: str, keys: dict[str, Any], expected: str | dict[str, str]
) -> None:
    found = relations(write(name, text), **keys)[0]
    wanted = expected if isinstance(expected, dict) else {"net": expected}
    assert {of: named(edges) for of, edges in found.items()} == {of: {*pairs.split()} for of, pairs in wanted.items()}
    assert all(edges.weight is None for edges in found.values())


def test_prefix_and_aliases(write: Write) -> None:
    aliases = Vocabulary.of_aliases({"abc1": ("YA",), "YB": ("YC",)})
    edges = relations(write("n.csv", "a,b\n4932.abc1,4932.YB\n"), strip_prefix="4932.", aliases=aliases)[0]["net"]
    assert named(edges) == {"YA>YB", "YB>YA"}, "a name of the vocabulary stands for itself"


def test_unknown_and_ambiguous_names_are_counted_and_dropped(write: Write) -> None:
    aliases = Vocabulary.of_aliases({"twin": ("YA", "YB")})
    path = write("n.csv", "a,b\nYA,YB\nYA,nobody\ntwin,YB\nnobody,twin\n")
    edges, provenance = relations(path, unknown="drop", aliases=aliases)
    assert named(edges["net"]) == {"YA>YB", "YB>YA"}
    assert provenance["names"] == {"total": 4, "unknown": ["nobody"], "ambiguous": ["twin"]}
    assert provenance["relations"]["net"]["dropped"] == 3


REFUSED: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "hash": ("a,b\nYA,YB\n", {"sha256": "0" * 64}, ("n.csv' is not the file it should be", "sha256 ")),
    "value": (
        "a,b,kind\nYA,YB,genetic\nYA,YC,\n",
        {"where": {"kind": "physical"}},
        ("'n.csv': no row has 'physical' in column 'kind'", "nothing, genetic", "correct `where`"),
    ),
    "longer row": ("a,b\nYA,YB\nYA,YB,YC\n", {}, ("'n.csv' cannot be read to its end",)),
    "open quote": ('a,b\n"YA,YB\nYA,YC\n', {}, ("'n.csv' cannot be read to its end",)),
    "threshold": (
        "a,b,w\nYA,YB,1\n",
        {"weight": "w", "min_weight": 2},
        ("the relation 'net' has no edges", "0 rows reach the threshold", "lower `min_weight`"),
    ),
    **{
        value: (
            f"a,b,{value}\nYA,YB,1\n",
            {"channels": [value]},
            (f"network 'net' (n.csv): 'net_{value}' cannot name a relation",),
        )
        for value in ("TRAPP complex", "Binding", "é")
    },
}


@pytest.mark.parametrize("case", REFUSED)
def test_tables_that_cannot_be_used_are_refused(write: Write, case: str) -> None:
    text, keys, said = REFUSED[case]
    with pytest.raises(DglcellError) as caught:
        relations(write("n.csv", text), **keys)
    assert all(part in str(caught.value) for part in said), str(caught.value)


def test_rows_are_chosen_by_what_they_hold(write: Write) -> None:
    path = write("n.tsv", "a\tb\tkind\torganism\nYA\tYB\tphysical\t1\nYC\tnobody\tgenetic\t1\nYC\tYD\tphysical\t2\n")
    edges, provenance = relations(path, where={"kind": "physical", "organism": "1"})
    assert named(edges["net"]) == {"YA>YB", "YB>YA"}
    assert provenance["rows"] == 1
    assert provenance["names"]["total"] == 2, "names of other rows are not looked at"


def test_pairs_within_another_table_are_left_out(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    path = write("n.csv", "a,b\nYA,YB\nAlpha,YC\nYC,YD\nYB,YD\n")
    aliases = Vocabulary.of_aliases({"Alpha": ("YA",)})
    screen = write("screen.csv", "one,other,score\nYA,YB,0.5\nYC,YB,-1\n")
    edges, provenance = relations(path, aliases=aliases, not_within=screen, directed=True)
    assert named(edges["net"]) == {"YC>YD", "YB>YD"}
    otherwise = write("otherwise.csv", "one,other\nx.ya,\nx.ALPHA,x.Yb\nx.YC,x.yb\n")
    keys = {"aliases": aliases, "directed": True, "strip_prefix": "x."}
    assert named(relations(path, not_within=otherwise, **keys)[0]["net"]) == {"YC>YD", "YB>YD"}
    assert not caplog.text
    relations(path, not_within=write("strange.csv", "one,other\nb0001,b0002\n"), **keys)
    assert "network 'net': no gene of it is in 'strange.csv', so that no pair is left out" in caplog.text
    assert provenance["not_within"] == {"path": screen, "sha256": hashlib.sha256(Path(screen).read_bytes()).hexdigest()}


def test_a_part_of_a_table_does_not_say_which_genes_it_has(tmp_path: Path) -> None:
    whole = FILES["interactions/collins2007_emap_whole.csv.gz"]
    assert whole.part is not None
    (tmp_path / "interactions").mkdir()
    (tmp_path / whole.part.path).write_text("gene_a,gene_b,s_score\nYA,YB,0.5\n")
    (tmp_path / "n.csv").write_text("a,b\nYA,YB\n")
    keys = {"columns": ["a", "b"], "not_within": whole.path}
    named = CellConfig(networks={"net": NetworkConfig(path=str(tmp_path / "n.csv"), **keys)}).tables()["net"]
    with pytest.raises(DataError, match=rf"{whole.path}' not found(.|\n)*data fetch {whole.path}"):
        read_network("net", named, Vocabulary(), GENES, str(tmp_path))


def test_bytes_that_are_no_text_matter_only_in_columns_that_are_read(tmp_path: Path) -> None:
    path = tmp_path / "n.tsv"
    path.write_bytes(b"a\tb\tauthor\nYA\tYB\tM\xfcller\n")
    assert len(relations(str(path))[0]["net"]) == 2
    with pytest.raises(GraphError, match=r"'n.tsv' cannot be read to its end\n.*not UTF-8 in column 'author'"):
        relations(str(path), weight="author")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"path": ""}, "`k.path` is not set"),
        ({"columns": ["a"]}, "`k.columns` must name two columns"),
        ({"columns": ["0", "1"]}, "`k.header` must be set"),
        ({"min_weight": 1.0}, "`k.min_weight` needs weights"),
        ({"channels": ["c"], "weight": "w"}, "`k.channels` excludes"),
        ({"layout": "groups", "channels": ["c"]}, "`k.channels` does not apply to `layout: groups`"),
    ],
)
def test_contradicting_keys(keys: dict[str, Any], message: str) -> None:
    config = NetworkConfig(**({"path": "n.csv", "columns": ["a", "b"]} | keys))
    with pytest.raises(ConfigError) as caught:
        config.validate("k")
    assert message in str(caught.value)


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


def of_names(cell: CellGraph, relation: str) -> set[tuple[str, str]]:
    edges = cell.edges(("gene", relation, "gene"))
    return {(cell.genes.names[a], cell.genes.names[b]) for a, b in zip(edges.src, edges.dst, strict=True)}


BOTH_WAYS = {*pairs(RAW_GENES), *((b, a) for a, b in pairs(RAW_GENES))}
ONE_DIRECTION = set(pairs(RAW_GENES))
COMPLEXES = {(a, b) for i, a in enumerate(RAW_GENES) for j, b in enumerate(RAW_GENES) if a != b and i // 3 == j // 3}
EXPECTED = {
    **dict.fromkeys(("sgd_physical", "biogrid_physical_3_4_156"), BOTH_WAYS),
    **dict.fromkeys(("tong2004_interactions", "kuzmin2018_interactions", "pan2006_interactions"), BOTH_WAYS),
    **dict.fromkeys(("sgd2007_negative_interactions", "sgd2007_rescues", "string12_0_physical"), BOTH_WAYS),
    "ecoli_k12_neighbours": BOTH_WAYS,
    **dict.fromkeys(("sgd_regulatory", "yeastract"), ONE_DIRECTION),
    "tflink": {(RAW_GENES[1], target) for target in RAW_GENES},
    **dict.fromkeys(("cyc2008_complexes", "go_slim_sgd", "ecoli_k12_families"), COMPLEXES),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_a_network_has_the_pairs_of_its_file(folder: Path, name: str) -> None:
    cell = cell_of(folder, name)
    assert of_names(cell, "net") == EXPECTED[name]
    assert cell.genes.names == tuple(sorted(RAW_GENES))


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
    folder = str(write_raw_folder(tmp_path, RAW_GENES))
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
