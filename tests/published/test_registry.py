"""The registry is complete, and the tables of the raw folder are those that recipes make."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import pytest

from dglcell.data.sources.laboratory import LABORATORIES
from dglcell.graph.catalogue import NETWORKS
from dglcell.published.conversions import CONVERSIONS, convert
from dglcell.published.file import FILES, ORIGINALS, download_size

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
    assert all(network.file.downloads for network in NETWORKS.values())


# The tables of the raw folder.


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
