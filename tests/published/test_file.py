"""Published files are found, downloaded from a real server on this machine, or made: whole and right, or not at all."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dglcell.errors import DataError
from dglcell.published.file import Found, PublishedFile, Recipe
from tests.http_server import Server, serve, serve_folder

CONTENT = b"query\tarray\tepsilon\n" + b"YAL001C\tYBR001C\t-0.1\n" * 5_000
OTHER = CONTENT.replace(b"-0.1", b"-0.2")
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FILE = PublishedFile("networks/n.tab", ("https://example.org/n.tab",), SHA256, len(CONTENT))
REMOTE = "http://example.invalid/raw.tsv"


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dglcell.published.file.WAITS", (0.0, 0.0))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    yield from serve(monkeypatch, CONTENT)


def remote(server: Server, path: str, sha256: str | None = None, size: int | None = None) -> PublishedFile:
    return PublishedFile("screens/raw.tsv", (server.url(path),), sha256, size)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def put(folder: Path, content: bytes = CONTENT, name: str = "networks/n.tab") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def read(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


# Downloads.


def test_a_declared_file_arrives_and_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    file = remote(server, "good", SHA256, len(CONTENT))
    found = file.fetch(tmp_path)
    assert found == Found(file, tmp_path / "screens/raw.tsv", SHA256, "declared", downloaded=True)
    assert found.path.read_bytes() == CONTENT
    assert files(tmp_path) == ["screens/raw.tsv"]
    assert file.fetch(tmp_path) == replace(found, downloaded=False)
    assert server.requests == ["/good"]


@pytest.mark.parametrize(
    ("path", "sha256", "message", "requests"),
    [
        (
            "good",
            "0" * 64,
            rf"is not the file it should be\n.* {SHA256}.*\n.*sha256 0{{64}}, 7 bytes\n.*download it",
            1,
        ),
        ("cut", None, "IncompleteRead(.|\n)*on a machine with internet access", 3),
        ("gone", None, "404", 1),
        ("moved", None, r"http://example\.invalid/raw\.tsv is not secure", 1),
    ],
)
def test_another_file_and_a_failed_download_leave_nothing(
    server: Server, tmp_path: Path, path: str, sha256: str | None, message: str, requests: int
) -> None:
    server.redirect = REMOTE
    with pytest.raises(DataError, match=message):
        remote(server, path, sha256, 7).fetch(tmp_path)
    assert files(tmp_path) == []
    assert server.requests == [f"/{path}"] * requests, "only what broke off is tried again"


def test_the_next_address_is_tried(server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = replace(remote(server, "gone", SHA256), copies=(PublishedFile("b.tsv", (server.url("good"),)),))
    assert file.fetch(tmp_path).path == tmp_path / "b.tsv"
    file = PublishedFile("c.tsv", tuple(server.url(path) for path in ("gone", "moved", "good")), SHA256)
    assert file.fetch(tmp_path).path == tmp_path / "c.tsv"
    assert server.requests == ["/gone", "/good", "/gone", "/moved", "/good"]
    assert caplog.text.count("the next address is tried") == 3


@pytest.mark.parametrize("url", ["ftp://host/a", "file:///etc/passwd", "//host/a", "https://", "data:,a", REMOTE])
def test_other_addresses_are_refused(url: str, tmp_path: Path) -> None:
    said = r"this is no address to download from|is not secure(.|\n)*download the file your"
    with pytest.raises(DataError, match=said):
        PublishedFile("raw.tsv", (url,), SHA256).fetch(tmp_path)
    assert files(tmp_path) == []


# What is here.


@pytest.mark.parametrize("name", ["networks/n.tab", "networks/n.tab.gz"])
def test_a_declared_file_is_compared_packed_or_not(tmp_path: Path, name: str) -> None:
    path = put(tmp_path, name=name)
    assert FILE.find(tmp_path) == FILE.fetch(tmp_path) == Found(FILE, path, SHA256, "declared")
    undeclared = replace(FILE, sha256=None, size=None)
    assert undeclared.find(tmp_path).trust == "nothing to compare with"
    put(tmp_path, OTHER, name)
    with pytest.raises(DataError, match=rf"sha256 {SHA256}(.|\n)*remove it, and fetch it again from https://example"):
        FILE.find(tmp_path)
    put(tmp_path, CONTENT[:50], name)
    with pytest.raises(DataError, match=r"is not the file it should be|not a whole gzip"):
        FILE.find(tmp_path)
    assert FILE.is_here(tmp_path)


def test_a_missing_file_says_where_it_can_be_had(tmp_path: Path) -> None:
    file = replace(FILE, member="inside.tab", copies=(PublishedFile("networks/m.tab"),))
    with pytest.raises(DataError) as caught:
        file.find(tmp_path)
    for text in (
        f"neither in the working folder nor in the raw folder '{tmp_path}'",
        "the file from https://example.org/n.tab, in it inside.tab, or 'networks/m.tab'",
        "`dglcell data fetch networks/n.tab`",
        "`DGLCELL_RAW`",
    ):
        assert text in str(caught.value)
    with pytest.raises(DataError, match=r"raw file 'networks/n\.tab' not found\n  got:      looked at"):
        replace(FILE, urls=()).find(tmp_path)


# Packed files, and those in archives.


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Return the folder that a server has: a plain and a packed file, a zip and a tgz archive of it."""
    folder = tmp_path / "published"
    put(folder, name="n.tab")
    put(folder, name="n.tab.gz")
    with zipfile.ZipFile(folder / "n.zip", "w") as zipped:
        zipped.writestr("other.tab", b"other")
        zipped.writestr("folder/n.tab", CONTENT)
    with tarfile.open(folder / "n.tgz", "w:gz") as tarred:
        packed = gzip.compress(CONTENT)
        entry = tarfile.TarInfo("release/n.tab.gz")
        entry.size = len(packed)
        tarred.addfile(entry, io.BytesIO(packed))
    return folder


@pytest.fixture
def address(published: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    yield from serve_folder(monkeypatch, published)


@pytest.mark.parametrize(
    ("name", "member", "arrives"),
    [
        ("n.tab", "", "networks/n.tab"),
        ("n.tab.gz", "", "networks/n.tab.gz"),
        ("n.zip", "n.tab", "networks/n.tab"),
        ("n.tgz", "n.tab.gz", "networks/n.tab.gz"),
    ],
)
@pytest.mark.parametrize("declared", [True, False])
def test_files_arrive_from_every_kind_of_address(
    address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, member: str, arrives: str, declared: bool
) -> None:
    file = replace(FILE, urls=(f"{address}/{name}",), member=member)
    if not declared:
        file = replace(file, sha256=None, size=None)
    raw = tmp_path / "raw"
    found = file.fetch(raw)
    assert (found.path, read(found.path)) == (raw / arrives, CONTENT)
    sha256 = SHA256 if declared or not arrives.endswith(".gz") else hashlib.sha256(found.path.read_bytes()).hexdigest()
    assert found.provenance() == {"sha256": sha256, "trust": "declared" if declared else "nothing to compare with"}
    assert found.downloaded
    assert (f"networks/n.tab: nobody states its hash; it is sha256 {sha256}" in caplog.text) is not declared
    assert file.fetch(raw) == replace(found, downloaded=False)
    other = replace(file, sha256="0" * 64, path="other/n.tab")
    with pytest.raises(DataError, match="expected: sha256 0000"):
        other.fetch(raw)
    assert files(raw / "other") == []


# Tables that are made.


def made(address: str, content: bytes = CONTENT) -> PublishedFile:
    """Return the server's file, packed, with the hashes of ``content``."""
    original = PublishedFile("originals/n.tab", (f"{address}/n.tab",), SHA256, len(CONTENT))
    return PublishedFile("genes/n.gz", content=hashlib.sha256(content).hexdigest(), made=Recipe("copy", (original,)))


def test_a_table_is_made_once(address: str, published: Path, tmp_path: Path) -> None:
    file, raw = made(address), tmp_path / "raw"
    found = file.fetch(raw)
    assert (found.path, read(found.path), found.trust) == (raw / "genes/n.gz", CONTENT, "declared")
    content = found.path.read_bytes()
    (published / "n.tab").unlink()
    assert file.fetch(raw) == replace(found, downloaded=False), "nothing is downloaded for it"
    found.path.unlink()
    assert file.fetch(raw).path.read_bytes() == content, "the downloads are still there"


def test_another_original_and_another_result_are_refused(address: str, published: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="made from the right files, but is not the table it should be"):
        made(address, OTHER).fetch(tmp_path / "raw")
    put(published, OTHER, "n.tab")
    with pytest.raises(DataError, match=r"n.tab' is not the file it should be\n.*\n.*\n.*download it again from"):
        made(address).fetch(tmp_path / "other")
    assert files(tmp_path / "other") == []
    assert not (tmp_path / "raw/genes/n.gz").exists()
