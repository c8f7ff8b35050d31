"""Atomic writes and raw files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dglcell.errors import DataError
from dglcell.files import atomic_directory, atomic_file, canonical_hash, find_raw, sha256_file, write_json
from tests.tiny import process_environment


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic_file(target) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "store"
    with pytest.raises(KeyboardInterrupt), atomic_directory(target) as partial:
        (partial / "data").write_text("half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with atomic_directory(target) as partial:
        (partial / "data").write_text("whole")
        assert not target.exists()
    assert (target / "data").read_text() == "whole"
    assert list(tmp_path.iterdir()) == [target]


def test_overwriting_needs_to_be_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "store"
    target.mkdir()
    with pytest.raises(DataError, match=r"exists already\n  do:       pass `--overwrite`"), atomic_directory(target):
        pass
    with atomic_directory(target, overwrite=True) as partial:
        (partial / "new").touch()
    assert [p.name for p in target.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [target]


def test_leftovers_of_a_killed_build_are_removed(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, dglcell.files as files\n"
        "with files.atomic_directory(pathlib.Path('a[1]')): os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=process_environment())
    (leftover,) = tmp_path.iterdir()
    with atomic_directory(tmp_path / "a[1]"):
        assert not leftover.exists()


def test_two_builds_at_once_leave_each_other_alone(tmp_path: Path) -> None:
    target = tmp_path / "store"
    with atomic_directory(target) as first:
        (first / "data").write_text("first")
        with atomic_directory(target) as second:
            (second / "data").write_text("second")
        assert (target / "data").read_text() == "second"
    assert (target / "data").read_text() == "first"
    assert list(tmp_path.iterdir()) == [target]


def test_raw_files_are_found_in_the_raw_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "networks").mkdir()
    file = tmp_path / "networks" / "edges.csv"
    file.write_text("a,b\n")
    assert find_raw("networks/edges.csv", str(tmp_path)) == file
    assert find_raw(str(file)) == file
    monkeypatch.setenv("DGLCELL_RAW", str(tmp_path))
    assert find_raw("networks/edges.csv") == file
    with pytest.raises(
        DataError, match=r"raw file 'networks/none.csv' not found\n  got:      looked at .*\n.*\n.*DGLCELL_RAW"
    ):
        find_raw("networks/none.csv")


def test_hashes_do_not_depend_on_key_order() -> None:
    assert canonical_hash({"a": 1, "b": [2]}) == canonical_hash({"b": [2], "a": 1})
    assert canonical_hash({"a": 1}) != canonical_hash({"a": 2})


def test_a_file_hash_is_that_of_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"abc")
    assert sha256_file(file) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_json_is_written_whole(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"ä": [1]})
    assert json.loads((tmp_path / "x.json").read_text()) == {"ä": [1]}
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"bad": object()})
    assert json.loads((tmp_path / "x.json").read_text()) == {"ä": [1]}
