from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from dglcell.download import FetchRecord, record_path
from dglcell.errors import DataError
from dglcell.graph.raw_file import RawFile

CONTENT = b"a\tb\n" * 100
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FILE = RawFile("networks/n.tab", "https://example.org/n.tab", SHA256, len(CONTENT))


def put(folder: Path, content: bytes = CONTENT, name: str = "networks/n.tab") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", ["networks/n.tab", "networks/n.tab.gz"])
def test_a_declared_file_is_compared_packed_or_not(tmp_path: Path, name: str) -> None:
    path = put(tmp_path, name=name)
    assert FILE.find(str(tmp_path)) == path
    assert FILE.check(path).provenance() == {"sha256": SHA256, "trust": "declared"}
    put(tmp_path, CONTENT.replace(b"b", b"c"), name)
    with pytest.raises(DataError) as caught:
        FILE.check(path)
    assert f"sha256 {SHA256}" in str(caught.value)
    assert "https://example.org/n.tab" in str(caught.value)


def test_a_file_cut_off_is_told_by_its_size(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="wrong size: cut off"):
        FILE.check(put(tmp_path, CONTENT[:50]))


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
    put(tmp_path, CONTENT + b"\n", name)
    with pytest.raises(DataError, match="not the file that was fetched on 2026-01-01"):
        file.check(path)


def test_a_missing_file_names_its_address_or_the_places_looked_at(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        replace(FILE, member="inside.tab").find(str(tmp_path))
    assert "the file from https://example.org/n.tab, in it inside.tab" in str(caught.value)
    with pytest.raises(DataError, match=r"raw file 'networks/n\.tab' not found") as caught:
        replace(FILE, url=None).find(str(tmp_path))
    assert "looked at" in str(caught.value)
