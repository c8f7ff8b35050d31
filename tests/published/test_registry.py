"""The registry is complete, and the tables of the raw folder are those that recipes make."""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dglcell.data.sources.laboratory import LABORATORIES
from dglcell.graph.catalogue import NETWORKS
from dglcell.published.conversions import CONVERSIONS, convert
from dglcell.published.file import download_size
from dglcell.published.registry import FILES, ORIGINALS
from tests.r_data import NamedMatrix, write_rda

MADE = {path: file for path, file in FILES.items() if file.made is not None}
PARTS = {
    f"interactions/{name}_whole.csv.gz": f"interactions/{name}.csv.gz"
    for name in ("collins2007_emap", "kuzmin2020_pilot")
}
"""Tables of which the raw folder has a part."""


@pytest.mark.parametrize("path", FILES)
def test_an_entry_is_complete(path: str) -> None:
    file = FILES[path]
    assert file.path == path
    assert not Path(path).is_absolute()
    assert all((file.description, file.citation, file.licence))
    assert all(
        re.fullmatch("[0-9a-f]{64}", known) for known in (file.sha256, file.archive_sha256, file.content) if known
    )
    assert all(re.match("https?://", url) and " " not in url for url in file.addresses)


@pytest.mark.parametrize("path", MADE)
def test_a_recipe_is_of_fixed_files(path: str) -> None:
    recipe = MADE[path].made
    assert recipe is not None
    assert path.endswith(".gz")
    assert MADE[path].content
    assert recipe.convert in {*CONVERSIONS, "copy"}
    assert recipe.originals
    for file in recipe.originals:
        assert re.fullmatch(r"https://raw\.githubusercontent\.com/[^/]+/[^/]+/[0-9a-f]{40}/.+", *file.urls)
        assert file.size
        assert re.fullmatch("[0-9a-f]{64}", file.sha256 or "")
    assert download_size(recipe.originals) == sum(file.size or 0 for file in recipe.originals)


def test_originals_do_not_share_names() -> None:
    originals = {original for file in MADE.values() for original in file.downloads}
    assert len({file.path for file in originals}) == len(originals)
    assert all(file.path.startswith(f"{ORIGINALS}/") for file in originals)


def test_screens_and_networks_in_a_form_of_their_own_are_made_by_recipes() -> None:
    tables = [file for screen in LABORATORIES.values() for file in screen.files]
    assert [file.path for file in tables if not file.downloads] == ["interactions/kuzmin2018_dataS2_orf.csv.gz"]
    by_hand = {name for name, network in NETWORKS.items() if not network.file.downloads}
    assert by_hand == {"yeastract_pairs", "yeastract_matrix"}, "made to order by their publisher"


# The tables of the raw folder, made again from files in the formats of the repositories: a writer for each format takes
# a table and a folder, and returns the names of the files that it wrote.


def collins2007(table: pd.DataFrame, folder: Path) -> list[str]:
    """Return a matrix in which a gene of pairs that were scored more than once stands more than once."""
    times = table.groupby(["gene_a", "gene_b"]).cumcount()
    copies = times.groupby(table["gene_b"]).max().add(1)
    genes = sorted({*table["gene_a"], *table["gene_b"]})
    names = [gene for gene in genes for _ in range(copies.get(gene, 1))]
    first = {name: i for i, name in reversed(list(enumerate(names)))}
    scores = np.full((len(names), len(names)), np.nan)
    # A gene may be sorted behind its partner: the lower triangle of a symmetric matrix is not read.
    rows, others = table["gene_a"].map(first).to_numpy(), table["gene_b"].map(first).to_numpy() + times.to_numpy()
    scores[rows, others] = table["s_score"].astype(float)
    write_rda(folder / "gi2007.rda", {"gi2007": NamedMatrix(scores, names)})
    return ["gi2007.rda"]


def tong2004(table: pd.DataFrame, folder: Path) -> list[str]:
    frame = table.astype({"query": "category", "array": "category", "interact": float})
    write_rda(folder / "AtongPair.rda", {"AtongPair": frame.assign(recip=table["recip"] == "True")})
    return ["AtongPair.rda"]


def costanzo2016(table: pd.DataFrame, folder: Path) -> list[str]:
    names = []
    for term, rows in table.groupby("go_term", sort=False):
        names.append(str(term))
        columns = rows.assign(two="2")[["two", "gene_a", "gene_b", "epsilon"]]
        columns.to_csv(folder / names[-1], sep=" ", index=False, header=False)
    return names


def kuzmin2020(table: pd.DataFrame, folder: Path) -> list[str]:
    columns = {
        "query": "Query Strain ID",
        "array": "Array Strain ID",
        "score": "Adjusted genetic interaction score (epsilon or tau)",
        "p": "P-value",
        "fitness": "Double/triple mutant fitness",
        "fitness_sd": "Double/triple mutant fitness standard deviation",
    }
    table[[*columns]].rename(columns=columns).to_csv(folder / "scored.txt", sep="\t", index=False)
    return ["scored.txt"]


def string11_5(table: pd.DataFrame, folder: Path) -> list[str]:
    genes = list(dict.fromkeys(table[["orf_a", "orf_b"]].to_numpy().ravel()))
    # As numbers grow from a gene to its partner, a pair is kept in the order of the table.
    order = sorted(genes)
    number = {gene: i for i, gene in enumerate(order)}
    (folder / "node_dict.txt").write_text(repr({f"4932.{gene}": i for gene, i in number.items()}))
    names = ["node_dict.txt"]
    ends = table["orf_a"].map(number) + 1, table["orf_b"].map(number) + 1
    for channel in table.columns[2:]:
        pairs = pd.DataFrame({"a": ends[0], "b": ends[1], "w": table[channel].astype(int) / 100})
        both = pd.concat([pairs, pairs.rename(columns={"a": "b", "b": "a"})[["a", "b", "w"]]])
        both.to_csv(folder / f"{channel}.txt", sep="\t", header=False, index=False)
        names.append(f"{channel}.txt")
    return names


def string9_1(table: pd.DataFrame, folder: Path) -> list[str]:
    genes = sorted({*table["orf_a"], *table["orf_b"]})
    number = {gene: i for i, gene in enumerate(genes, start=1)}
    (folder / "genes.txt").write_text("\n".join(genes) + "\n")
    names = ["genes.txt"]
    for channel, rows in table.groupby("channel", sort=False):
        lines = zip(rows["orf_a"].map(number), rows["orf_b"].map(number), rows["w"].astype(float), strict=True)
        (folder / f"{channel}.txt").write_text("".join(f"{a}\t{b}\t{w:.6f}\n" for a, b, w in lines))
        names.append(f"{channel}.txt")
    return names


def biogrid(table: pd.DataFrame, folder: Path) -> list[str]:
    number = {gene: i for i, gene in enumerate(sorted({*table["orf_a"], *table["orf_b"]}))}
    nodes = [f'  node [\n    id {i}\n    label "{gene.lower()}  abc{i}"\n  ]\n' for gene, i in number.items()]
    ends = zip(table["orf_a"].map(number), table["orf_b"].map(number), strict=True)
    edges = [f"  edge [\n    source {a}\n    target {b}\n  ]\n" for a, b in ends]
    (folder / "ppc.gml").write_text("".join(["graph [\n", *nodes, *edges, "]\n"]))
    return ["ppc.gml"]


def yeastract(table: pd.DataFrame, folder: Path) -> list[str]:
    targets, factors = list(dict.fromkeys(table["target"])), list(dict.fromkeys(table["tf"]))
    # Factors stand in an order that gives every target's in that of the table.
    matrix = pd.crosstab(table["target"], table["tf"]).reindex(index=targets)
    order = _merged([list(group) for _, group in table.groupby("target", sort=False)["tf"]], factors)
    matrix[order].rename_axis("SystematicName").to_csv(folder / "matrix.tsv", sep="\t")
    return ["matrix.tsv"]


def _merged(lists: list[list[str]], names: list[str]) -> list[str]:
    """Return an order of all names that agrees with that of every list."""
    from graphlib import TopologicalSorter

    before: dict[str, set[str]] = {name: set() for name in names}
    for items in lists:
        for one, other in itertools.pairwise(items):
            before[other].add(one)
    return list(TopologicalSorter(before).static_order())


WRITERS = {
    "interactions/collins2007_emap_whole.csv.gz": collins2007,
    "interactions/costanzo2016_two_go_terms.csv.gz": costanzo2016,
    "interactions/kuzmin2020_pilot_whole.csv.gz": kuzmin2020,
    "interactions/tong2004_tested_pairs.csv.gz": tong2004,
    "networks/string_v11_5_highconf_six_channels.csv.gz": string11_5,
    "networks/dango_string_v9_1_edges.csv.gz": string9_1,
    "networks/biogrid_physical_kisr_edges.csv.gz": biogrid,
    "networks/yeastract_edges.csv.gz": yeastract,
}


ROWS_ONLY = ("ecoli/mathis2020_crispri.csv.gz", "ecoli/faure2023_media.csv.gz", "ecoli/baba2006_keio.csv.gz")
"""The raw folder may hold some rows of these tables, which are read as they are."""

ORIGINALS_ONLY = {"genes/smf_alleles.csv.gz": ("smf_t30_150803.tsv.gz", "strain_orf_common_allele_160425.tsv.gz")}
"""The raw folder has only what these tables are made from."""

DOWNLOADED_ONLY = (
    "genes/ecoli_k12_families.csv.gz",
    "networks/ecoli_k12_neighbours.csv.gz",
    "interactions/kuzmin2018_negative_pairs.csv.gz",
)
"""The raw folder has neither these tables nor what they are made from."""


@pytest.mark.raw
@pytest.mark.parametrize("path", MADE)
def test_the_raw_folder_has_what_the_recipe_makes(path: str, raw: Path) -> None:
    if path not in (*PARTS, *ROWS_ONLY, *ORIGINALS_ONLY, *DOWNLOADED_ONLY):
        MADE[path].check(raw / path)


@pytest.mark.raw
@pytest.mark.parametrize("path", ORIGINALS_ONLY)
def test_the_table_is_made_from_the_raw_folder(path: str, raw: Path, tmp_path: Path) -> None:
    originals = []
    for name in ORIGINALS_ONLY[path]:
        originals.append(tmp_path / name.removesuffix(".gz"))
        originals[-1].write_bytes(gzip.decompress((raw / "genes" / name).read_bytes()))
    recipe = MADE[path].made
    assert recipe is not None
    made = convert(recipe.convert, originals, recipe.arguments)
    assert hashlib.sha256(made).hexdigest() == MADE[path].content


SOME_ROWS = 20_000
"""About so many rows of a table are made again, from its beginning to its end."""


@pytest.mark.raw
@pytest.mark.parametrize("path", WRITERS)
def test_the_table_is_made_again(path: str, raw: Path, tmp_path: Path) -> None:
    recipe = MADE[path].made
    assert recipe is not None
    header, *lines = gzip.decompress((raw / PARTS.get(path, path)).read_bytes()).splitlines(keepends=True)
    some = header + b"".join(lines[:: 1 + len(lines) // SOME_ROWS])
    names = WRITERS[path](pd.read_csv(io.BytesIO(some), dtype=str, keep_default_na=False), tmp_path)
    assert convert(recipe.convert, [tmp_path / name for name in names], recipe.arguments) == some
