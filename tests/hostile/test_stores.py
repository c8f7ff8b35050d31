"""Stores: what `dglcell data stats --verify` finds of a damaged one, whichever byte it is."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from dglcell.cli import main
from dglcell.data.store import value_key
from tests.hostile.inputs import EXPERIMENT, check_message, status_of, tree, write

CONFIG = """\
cell: {model: textbook}
data: {source: {name: csv, csv: {path: strains.csv, genes: [a, b], phenotypes: {fitness: score}}}}
"""
STRAINS = 9_000
SAMPLE = 150
"""Flipped bytes, beside the first and the last of every page."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of pairs."""
    folder = tmp_path_factory.mktemp("whole")
    rows = "".join(f"g{n % 700},h{n},0.{n}\n" for n in range(STRAINS))
    write(folder, {EXPERIMENT: CONFIG, "strains.csv": "a,b,score\n" + rows})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["data", "build", EXPERIMENT, "data.store=store"]) == 0
    return folder / "store"


def record(key: bytes, value: bytes | None) -> Callable[[Path], None]:
    """Return what puts another record, or takes one away."""

    def damage(path: Path) -> None:
        with lmdb.open(str(path), lock=False) as environment, environment.begin(write=True) as transaction:
            transaction.delete(key) if value is None else transaction.put(key, value)

    return damage


def another_hash(path: Path) -> None:
    """Give a column another hash; the description's own hash is the old one."""
    with lmdb.open(str(path), lock=False) as environment, environment.begin(write=True) as transaction:
        content = json.loads(transaction.get(b"meta"))
        content["columns"][0][1] = "0" * 64
        transaction.put(b"meta", json.dumps(content).encode())


def half(path: Path) -> None:
    """Cut the file off."""
    content = (path / "data.mdb").read_bytes()
    (path / "data.mdb").write_bytes(content[: len(content) // 2])


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no file": (lambda path: (path / "data.mdb").unlink(), "no data.mdb"),
    "text": (lambda path: (path / "data.mdb").write_bytes(b"not a database" * 1000), "data.mdb"),
    "half a file": (half, "data.mdb"),
    "no description": (record(b"meta", None), "meta"),
    "a description that is nested deep": (record(b"meta", b"[" * 100_000), "meta"),
    "a schema from the future": (record(b"meta", b'{"schema": 99}'), "schema 99"),
    "another hash": (another_hash, "meta"),
    "a value less": (record(value_key(0, 1), None), "column 'genes'"),
    "a value of zeros": (record(value_key(0, 2), bytes(4 * STRAINS)), "column 'phenotype of fitness'"),
}


def verified(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what `dglcell data stats --verify` says of a damaged store; it changes nothing."""
    before = tree(path.parent)
    capsys.readouterr()
    assert status_of(("data", "stats", "--verify", str(path))) == 2
    assert tree(path.parent) == before
    return capsys.readouterr().err


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("hashed", [True, False], ids=["with its hash", "without a hash"])
def test_damaged_stores(
    kind: str, hashed: bool, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the file's hash is recorded it tells, and where it is not LMDB and the content do."""
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    if not hashed:
        (copy / "data.mdb.sha256").unlink()
    damage, says = DAMAGE[kind]
    damage(copy)
    check_message(verified(copy, capsys), "data.mdb" if hashed else says if "data.mdb" not in says else "store")


def test_every_flipped_byte_is_found(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    file = copy / "data.mdb"
    whole = file.read_bytes()
    page = 4096
    ends = [at for start in range(0, len(whole), page) for at in (start, start + page - 1)]
    places = ends + random.Random(0).sample(range(len(whole)), SAMPLE)
    for at in places:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        assert status_of(("data", "stats", "--verify", str(copy))) == 2, at
    file.write_bytes(whole)
    capsys.readouterr()
    assert main(["data", "stats", "--verify", str(copy)]) == 0
    assert capsys.readouterr().out.count("\n") == 1
