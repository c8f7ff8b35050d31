"""Downloads from a real server on this machine: what arrives is whole and right, or nothing does."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dglcell.errors import DataError
from dglcell.published import download
from dglcell.published.download import RemoteFile, check_address, fetch, read_record, record_path
from tests.http_server import Server, serve

CONTENT = b"query\tarray\tepsilon\n" + b"YAL001C\tYBR001C\t-0.1\n" * 5_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    yield from serve(monkeypatch, CONTENT)


def remote(server: Server, path: str, sha256: str | None = None, size: int | None = None) -> RemoteFile:
    return RemoteFile(server.url(path), "screens/raw.tsv", sha256, size)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_declared_file_arrives_and_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    file = remote(server, "good", SHA256, len(CONTENT))
    path = fetch(file, tmp_path)
    assert path == tmp_path / "screens" / "raw.tsv"
    assert path.read_bytes() == CONTENT
    assert files(tmp_path) == ["screens/raw.tsv", "screens/raw.tsv.fetched.json"]
    record = read_record(path)
    assert record is not None
    assert (record.url, record.sha256, record.size, record.trust) == (file.url, SHA256, len(CONTENT), "declared")
    assert fetch(file, tmp_path) == path
    assert server.requests == ["/good"]


def test_an_undeclared_hash_is_that_of_the_first_download(server: Server, tmp_path: Path) -> None:
    file = remote(server, "good")
    path = fetch(file, tmp_path)
    record = read_record(path)
    assert record is not None
    assert (record.sha256, record.trust) == (SHA256, "first use")
    path.unlink()
    server.content = CONTENT.replace(b"-0.1", b"-0.2")
    with pytest.raises(DataError, match=r"is not the file that was fetched on (.|\n)*remove '.*raw.tsv.fetched.json'"):
        fetch(file, tmp_path)
    assert files(tmp_path) == ["screens/raw.tsv.fetched.json"]
    server.content = CONTENT
    assert fetch(file, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("sha256", "size", "message"),
    [
        ("0" * 64, None, rf"is not the file it should be\n.*sha256 {SHA256}\n.*sha256 0{{64}}\n"),
        (SHA256, 7, rf"wrong size(.|\n)*{len(CONTENT):,} bytes(.|\n)*7 bytes"),
    ],
)
def test_another_file_than_declared_is_not_kept(
    server: Server, tmp_path: Path, sha256: str, size: int | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        fetch(remote(server, "good", sha256, size), tmp_path)
    assert files(tmp_path) == []


@pytest.mark.parametrize(("path", "message"), [("cut", "IncompleteRead"), ("gone", "404")])
def test_a_failed_download_leaves_nothing_and_says_what_to_do(
    server: Server, tmp_path: Path, path: str, message: str
) -> None:
    file = remote(server, path)
    with pytest.raises(DataError, match=message) as caught:
        fetch(file, tmp_path)
    assert file.url in str(caught.value)
    assert f"put the file at '{tmp_path / file.name}'" in str(caught.value)
    assert files(tmp_path) == []


def test_a_server_that_falls_silent_is_not_waited_for(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "READ_TIMEOUT", 0.2)
    with pytest.raises(DataError, match="timed out"):
        fetch(remote(server, "slow"), tmp_path)
    assert files(tmp_path) == []


def test_without_a_network_the_address_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        file = RemoteFile(f"http://127.0.0.1:{unused.getsockname()[1]}/raw.tsv", "raw.tsv")
        with pytest.raises(DataError, match=rf"cannot be downloaded(.|\n)*{file.url}(.|\n)*put the file at"):
            fetch(file, tmp_path)


@pytest.mark.parametrize(("number", "left"), [(signal.SIGINT, 0), (signal.SIGKILL, 1)])
def test_an_interrupted_download_leaves_no_half_file(
    server: Server, tmp_path: Path, number: signal.Signals, left: int
) -> None:
    file = remote(server, "slow")
    code = "import sys; from dglcell.published.download import *; fetch(RemoteFile(*sys.argv[1:3]), sys.argv[3])"
    # A process that is started in the background may ignore it, and its children with it.
    code = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {code}"
    with subprocess.Popen(
        [sys.executable, "-c", code, file.url, file.name, str(tmp_path)], env=os.environ, stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 60
        while not (server.requests and any(tmp_path.rglob(".raw.tsv*"))) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(300) != 0
    assert not (tmp_path / file.name).exists()
    assert len(files(tmp_path)) == left
    assert fetch(remote(server, "good", SHA256), tmp_path).read_bytes() == CONTENT
    assert files(tmp_path) == [file.name, file.name + ".fetched.json"]


def test_a_file_put_there_by_hand_is_checked_and_needs_no_network(tmp_path: Path) -> None:
    path = tmp_path / "raw.tsv"
    path.write_bytes(CONTENT)
    assert fetch(RemoteFile("http://127.0.0.1:1/raw.tsv", "raw.tsv", SHA256, len(CONTENT)), tmp_path) == path
    assert fetch(RemoteFile("http://127.0.0.1:1/raw.tsv", "raw.tsv"), tmp_path) == path
    assert read_record(path) is None
    with pytest.raises(DataError, match="remove it, and fetch it again from http"):
        fetch(RemoteFile("http://127.0.0.1:1/raw.tsv", "raw.tsv", "0" * 64), tmp_path)
    assert path.read_bytes() == CONTENT


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "raw.tsv"
    record_path(path).write_text(json.dumps({"url": "x"}))
    with pytest.raises(DataError, match=r"raw.tsv.fetched.json' is no record of a download"):
        read_record(path)


REMOTE = "http://example.invalid/raw.tsv"


@pytest.mark.parametrize("url", ["ftp://host/a", "file:///etc/passwd", "//host/a", "raw.tsv", "https://", "data:,a"])
def test_other_addresses_are_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="this is no address to download from"):
        fetch(RemoteFile(url, "raw.tsv", SHA256), tmp_path)
    assert files(tmp_path) == []


def test_plain_http_is_refused_where_no_hash_is_declared(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is not secure(.|\n)*pass `--insecure` if you trust the network"):
        fetch(RemoteFile(REMOTE, "raw.tsv"), tmp_path)
    assert files(tmp_path) == []
    check_address(REMOTE, insecure=True)


def test_plain_http_is_taken_where_a_hash_is_declared_or_recorded(tmp_path: Path) -> None:
    """As far as a machine without a network tells: the address is asked."""
    with pytest.raises(DataError, match=r"'raw\.tsv' cannot be downloaded"):
        fetch(RemoteFile(REMOTE, "raw.tsv", SHA256), tmp_path)
    record = {"url": REMOTE, "sha256": SHA256, "size": 1, "fetched": "2026-01-01", "trust": "first use"}
    record_path(tmp_path / "raw.tsv").write_text(json.dumps(record))
    with pytest.raises(DataError, match=r"'raw\.tsv' cannot be downloaded"):
        fetch(RemoteFile(REMOTE, "raw.tsv"), tmp_path)


def test_an_address_may_not_lead_to_one_that_is_not_secure(server: Server, tmp_path: Path) -> None:
    server.redirect = REMOTE
    with pytest.raises(DataError, match=r"http://example\.invalid/raw\.tsv is not secure"):
        fetch(remote(server, "moved"), tmp_path)
    assert files(tmp_path) == []
