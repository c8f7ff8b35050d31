"""Published files: found, checked, downloaded."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from dglcell.cli import main
from dglcell.errors import DataError
from dglcell.graph.catalogue import GENE_SETS, MODELS, NETWORKS, NetworkConfig
from dglcell.graph.config import CellConfig
from dglcell.graph.fetch import cell_files, fetch_file
from dglcell.graph.gene_space import SimilarityConfig, SimilaritySource
from dglcell.published.download import FetchRecord, record_path
from dglcell.published.raw_file import RawFile
from tests.http_server import serve_folder

RAW_CONTENT = b"a\tb\n" * 100
RAW_SHA256 = hashlib.sha256(RAW_CONTENT).hexdigest()
FILE = RawFile("networks/n.tab", "https://example.org/n.tab", RAW_SHA256, len(RAW_CONTENT))


def put(folder: Path, content: bytes = RAW_CONTENT, name: str = "networks/n.tab") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", ["networks/n.tab", "networks/n.tab.gz"])
def test_a_declared_file_is_compared_packed_or_not(tmp_path: Path, name: str) -> None:
    path = put(tmp_path, name=name)
    assert FILE.find(str(tmp_path)) == path
    assert FILE.check(path).provenance() == {"sha256": RAW_SHA256, "trust": "declared"}
    put(tmp_path, RAW_CONTENT.replace(b"b", b"c"), name)
    with pytest.raises(DataError) as caught:
        FILE.check(path)
    assert f"sha256 {RAW_SHA256}" in str(caught.value)
    assert "https://example.org/n.tab" in str(caught.value)


def test_a_table_with_a_recipe_is_compared_by_its_content(tmp_path: Path) -> None:
    file = RawFile("networks/n.csv.gz", content=RAW_SHA256)
    path = put(tmp_path, name="networks/n.csv.gz")
    assert file.check(path).trust == "declared"
    put(tmp_path, RAW_CONTENT + b"c", "networks/n.csv.gz")
    with pytest.raises(DataError, match="does not hold the file it should"):
        file.check(path)


def test_a_file_cut_off_is_told_by_its_size(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="wrong size: cut off"):
        FILE.check(put(tmp_path, RAW_CONTENT[:50]))


def test_a_torn_packed_copy(tmp_path: Path) -> None:
    path = put(tmp_path, name="networks/n.tab.gz")
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(DataError, match="is not a whole gzip file"):
        FILE.check(path)


@pytest.mark.parametrize("name", ["networks/n.tab", "networks/n.tab.gz"])
def test_without_a_declared_hash_the_record_of_the_download_counts(tmp_path: Path, name: str) -> None:
    file, path = replace(FILE, sha256=None, size=None), put(tmp_path, name=name)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert file.check(path).provenance() == {"sha256": digest, "trust": "nothing to compare with"}
    record = FetchRecord("https://example.org/n.tab", digest, path.stat().st_size, "2026-01-01", "first use")
    record_path(path).write_text(json.dumps(asdict(record)))
    assert file.check(path).trust == "first use"
    put(tmp_path, RAW_CONTENT + b"\n", name)
    with pytest.raises(DataError, match="not the file that was fetched on 2026-01-01"):
        file.check(path)


def test_a_missing_file_names_its_address_or_the_places_looked_at(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        replace(FILE, member="inside.tab").find(str(tmp_path))
    assert "the file from https://example.org/n.tab, in it inside.tab" in str(caught.value)
    with pytest.raises(DataError, match=r"raw file 'networks/n\.tab' not found") as caught:
        replace(FILE, url=None).find(str(tmp_path))
    assert "looked at" in str(caught.value)


# Files of the catalogue from a real server on this machine.


CONTENT = b"YAL001C\tYAL002W\n" * 50
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server with a plain and a packed file, a zip and a tgz archive of it."""
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "n.tab").write_bytes(CONTENT)
    (folder / "n.tab.gz").write_bytes(gzip.compress(CONTENT))
    with zipfile.ZipFile(folder / "n.zip", "w") as zipped:
        zipped.writestr("other.tab", b"other")
        zipped.writestr("folder/n.tab", CONTENT)
    with tarfile.open(folder / "n.tgz", "w:gz") as tarred:
        packed = gzip.compress(CONTENT)
        entry = tarfile.TarInfo("release/n.tab.gz")
        entry.size = len(packed)
        tarred.addfile(entry, io.BytesIO(packed))
    yield from serve_folder(monkeypatch, folder)


def read(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


@pytest.mark.parametrize(
    ("name", "member", "arrives"),
    [
        ("n.tab", None, "networks/n.tab"),
        ("n.tab.gz", None, "networks/n.tab.gz"),
        ("n.zip", "n.tab", "networks/n.tab"),
        ("n.tgz", "n.tab.gz", "networks/n.tab.gz"),
    ],
)
@pytest.mark.parametrize("declared", [True, False])
def test_files_arrive_from_every_kind_of_address(
    server: str, tmp_path: Path, name: str, member: str | None, arrives: str, declared: bool
) -> None:
    file = RawFile("networks/n.tab", f"{server}/{name}", member=member)
    if declared:
        file = replace(file, sha256=SHA256, size=len(CONTENT))
    raw = tmp_path / "raw"
    fetched = fetch_file(file, raw)
    assert fetched.path == raw / arrives
    assert fetched.downloaded
    assert read(fetched.path) == CONTENT
    assert fetched.checked.trust == ("declared" if declared else "first use")
    again = fetch_file(file, raw)
    assert not again.downloaded
    assert again.checked == fetched.checked


@pytest.mark.parametrize(("name", "member"), [("n.tab", None), ("n.tab.gz", None), ("n.zip", "n.tab")])
def test_another_file_than_declared_is_refused(server: str, tmp_path: Path, name: str, member: str | None) -> None:
    file = RawFile("networks/n.tab", f"{server}/{name}", sha256="0" * 64, member=member)
    with pytest.raises(DataError, match=SHA256 if name != "n.zip" else "sha256 0000"):
        fetch_file(file, tmp_path / "raw")
    assert not list((tmp_path / "raw/networks").glob("n.tab*"))


def test_an_archive_without_the_file(server: str, tmp_path: Path) -> None:
    file = RawFile("networks/n.tab", f"{server}/n.zip", member="nothing.tab")
    with pytest.raises(DataError, match=r"archive 'n\.zip' holds 0 files called 'nothing\.tab'"):
        fetch_file(file, tmp_path / "raw")
    assert not (tmp_path / "raw/networks/n.tab").exists()


def test_a_torn_archive(server: str, tmp_path: Path) -> None:
    archive = tmp_path / "raw/archives/n.zip"
    archive.parent.mkdir(parents=True)
    archive.write_bytes((tmp_path / "published/n.zip").read_bytes()[:50])
    with pytest.raises(DataError, match="is not a whole archive"):
        fetch_file(RawFile("networks/n.tab", f"{server}/n.zip", member="n.tab"), tmp_path / "raw")


def test_what_has_no_address_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        fetch_file(NETWORKS["yeastract_matrix"].file, tmp_path)
    assert "'networks/RegulationMatrix.csv' cannot be downloaded" in str(caught.value)
    assert f"the file at '{tmp_path}/networks/RegulationMatrix.csv'" in str(caught.value)


def test_a_cell_needs_the_files_of_the_catalogue_that_it_names() -> None:
    networks = {
        "physical": NetworkConfig(source="sgd_physical"),
        "again": NetworkConfig(source="sgd_physical"),
        "mine": NetworkConfig(source="tflink", path="mine.tsv"),
        "table": NetworkConfig(path="n.csv", columns=["a", "b"]),
    }
    sets = {
        "slim": SimilaritySource(sets=NetworkConfig(source="go_slim_sgd")),
        "own": SimilaritySource(vectors="x.npz"),
    }
    config = CellConfig(
        model="yeast-GEM_9.0.2",
        genes="sgd_features",
        aliases="sgd_features",
        networks=networks,
        similarity=SimilarityConfig(sources=sets),
    )
    assert cell_files(config) == [
        MODELS["yeast-GEM_9.0.2"].file,
        GENE_SETS["sgd_features"].file,
        GENE_SETS["sgd_names"].file,
        NETWORKS["sgd_physical"].file,
        NETWORKS["go_slim_sgd"].file,
    ]
    assert cell_files(CellConfig(model="textbook")) == []


def experiment(folder: Path, text: str) -> str:
    (folder / "cell.yaml").write_text(text)
    return str(folder / "cell.yaml")


def test_the_command_prints_addresses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = experiment(tmp_path, "cell: {genes: sgd_r64_4_1, networks: {string12_0: {source: string12_0}}}\n")
    assert main(["graph", "fetch", file, "--addresses"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "genes/saccharomyces_cerevisiae_R64-4-1_20230830.gff  "
        "(in it: saccharomyces_cerevisiae_R64-4-1_20230830.gff.gz)",
        "    http://sgd-archive.yeastgenome.org/sequence/S288C_reference/genome_releases/"
        "S288C_reference_genome_R64-4-1_20230830.tgz",
        "networks/4932.protein.links.detailed.v12.0.txt.gz",
        "    https://stringdb-downloads.org/download/protein.links.detailed.v12.0/"
        "4932.protein.links.detailed.v12.0.txt.gz",
    ]


def test_the_command_checks_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = experiment(tmp_path, "cell: {networks: {physical: {source: sgd_physical}}}\n")
    path = tmp_path / "networks/interaction_data.tab"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    assert main(["graph", "fetch", file, "--raw", str(tmp_path)]) == 0
    assert (
        capsys.readouterr().out
        == f"{path}  {len(CONTENT)} bytes, was here\n    sha256 {SHA256} (nothing to compare with)\n"
    )
    assert main(["graph", "fetch", experiment(tmp_path, "cell: {model: textbook}\n")]) == 0
    assert "needs no file of the catalogue" in capsys.readouterr().out


def test_the_catalogue_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / NETWORKS["tflink"].file.path
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    assert main(["graph", "list", "--raw", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in (*NETWORKS, *GENE_SETS, *MODELS):
        assert f"  {name}" in lines
    assert f"    {NETWORKS['tflink'].file.path}: here" in lines
    assert f"    {NETWORKS['string9_1'].file.path}: not here" in lines
    assert f"    {NETWORKS['yeastract_matrix'].file.path}: not here, and without an address" in lines
    assert max(map(len, lines)) <= 100
