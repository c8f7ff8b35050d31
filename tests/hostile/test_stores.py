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


def change_meta(change: Callable[[dict], object]) -> Callable[[Path], None]:
    """Return a description that says something else; its own hash is that of the old one."""

    def damage(path: Path) -> None:
        with lmdb.open(str(path), lock=False) as environment, environment.begin(write=True) as transaction:
            content = json.loads(transaction.get(b"meta"))
            change(content)
            transaction.put(b"meta", json.dumps(content).encode())

    return damage


def put(key: bytes, value: bytes) -> Callable[[Path], None]:
    """Another record."""

    def damage(path: Path) -> None:
        with lmdb.open(str(path), lock=False) as environment, environment.begin(write=True) as transaction:
            transaction.put(key, value)

    return damage


def drop(key: bytes) -> Callable[[Path], None]:
    """Return one record less."""

    def damage(path: Path) -> None:
        with lmdb.open(str(path), lock=False) as environment, environment.begin(write=True) as transaction:
            transaction.delete(key)

    return damage


def cut(share: float) -> Callable[[Path], None]:
    """Return a file that is cut off."""

    def damage(path: Path) -> None:
        content = (path / "data.mdb").read_bytes()
        (path / "data.mdb").write_bytes(content[: int(share * len(content))])

    return damage


def replaced(content: bytes) -> Callable[[Path], None]:
    """Another file."""
    return lambda path: (path / "data.mdb").write_bytes(content) and None


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no file": (lambda path: (path / "data.mdb").unlink(), "no data.mdb"),
    "text": (replaced(b"not a database" * 1000), "data.mdb"),
    "half a file": (cut(0.5), "data.mdb"),
    "no description": (drop(b"meta"), "meta"),
    "a description that is nested deep": (put(b"meta", b"[" * 100_000), "meta"),
    "a schema from the future": (put(b"meta", b'{"schema": 99}'), "schema 99"),
    "another hash": (change_meta(lambda meta: meta["columns"][0].__setitem__(1, "0" * 64)), "meta"),
    "a value less": (drop(value_key(0, 1)), "column 'genes'"),
    "a value of zeros": (put(value_key(0, 2), bytes(4 * STRAINS)), "column 'phenotype of fitness'"),
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
