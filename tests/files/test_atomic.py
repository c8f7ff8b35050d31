"""Atomic writes and raw files."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from dglcell.errors import DataError
from dglcell.files import atomic as files
from dglcell.files import mark_of
from dglcell.files.atomic import (
    atomic_directory,
    atomic_file,
    clear_abandoned,
    find_raw,
    only_writer,
    shortest,
    write_json,
)


def test_numbers_are_their_shortest_texts_and_missing_ones_empty() -> None:
    assert shortest(np.float32([np.nan, 2, 30012.346, -0.1])) == ["", "2", "30012.346", "-0.1"]


def test_a_file_is_written_whole_and_follows_the_umask(tmp_path: Path) -> None:
    target = tmp_path / "table.json"
    before = os.umask(0o027)
    try:
        write_json(target, {"ä": [1]})
        with atomic_directory(tmp_path / "store") as partial:
            (partial / "data").touch()
    finally:
        os.umask(before)
    for value, error in (({"bad": object()}, TypeError), (None, RuntimeError)):
        with pytest.raises(error), atomic_file(target) as partial:
            partial.write_text("half")
            write_json(partial, value)
            raise RuntimeError
        assert json.loads(target.read_text()) == {"ä": [1]}
    modes = {str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"table.json": 0o640, "store": 0o750, "store/data": 0o640}


def test_a_directory_appears_whole_or_not_at_all_and_is_replaced_where_asked(tmp_path: Path) -> None:
    target = tmp_path / "store"
    with pytest.raises(KeyboardInterrupt), atomic_directory(target) as partial:
        (partial / "data").write_text("half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with atomic_directory(target) as partial:
        (partial / "data").write_text("whole")
        assert not target.exists()
    assert (target / "data").read_text() == "whole"
    with pytest.raises(DataError, match=r"exists already\n  do:       pass `--overwrite`"), atomic_directory(target):
        pass
    with atomic_directory(target, overwrite=True) as partial:
        (partial / "new").touch()
    assert [p.name for p in target.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [target]


def die_inside(writing: Callable[[Path], AbstractContextManager[object]], target: Path) -> None:
    """Let another process write, and kill it meanwhile."""

    def write() -> None:
        with writing(target):
            os.kill(os.getpid(), signal.SIGKILL)

    child = multiprocessing.get_context("fork").Process(target=write)
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL


def test_leftovers_of_a_killed_build_are_removed(tmp_path: Path) -> None:
    die_inside(atomic_directory, tmp_path / "a[1]")
    (leftover,) = tmp_path.iterdir()
    with atomic_directory(tmp_path / "a[1]"):
        assert not leftover.exists()


def test_an_old_directory_that_was_put_aside_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process has left that was killed between two renames, where a single operation is not possible."""
    target = tmp_path / "store"
    ended = mark_of(os.getpid()).rpartition("-")[0] + "-1"
    aside, half = tmp_path / f".store.partial-{ended}-00000000.old", tmp_path / f".store.partial-{ended}-00000000"
    for folder in (aside, half):
        folder.mkdir()
        (folder / folder.suffix).touch()
    elsewhere = tmp_path / f".store.partial-{'0' * 10}-1-1-00000000"
    elsewhere.mkdir()
    with pytest.raises(DataError, match="exists already"), atomic_directory(target):
        pass
    assert [path.name for path in target.iterdir()] == [".old"]
    assert sorted(tmp_path.iterdir()) == sorted([target, elsewhere])
    with only_writer(target):
        assert list(tmp_path.glob(".store.partial-*")) == [], "it is of a process that has no lease"


def test_the_right_to_write_that_a_killed_process_had_is_tidied_up(tmp_path: Path) -> None:
    target = tmp_path / "store"
    target.mkdir()
    die_inside(only_writer, target)
    assert (tmp_path / ".store.owner.json").is_file()
    clear_abandoned(target)
    assert list(tmp_path.iterdir()) == [target]
    with only_writer(target):
        clear_abandoned(target)
        assert (tmp_path / ".store.owner.json").is_file(), "this process has it"


def test_a_failed_replacement_leaves_the_old_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, rename, asked = tmp_path / "store", os.rename, []
    target.mkdir()

    def fail(old: Path, new: Path) -> None:
        asked.append(new)
        if len(asked) == 2:
            raise OSError(errno.EIO, "no luck")
        rename(old, new)

    monkeypatch.setattr(files, "exchange", lambda first, second: False)
    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="no luck"), atomic_directory(target, overwrite=True) as partial:
        (partial / "new").touch()
    assert list(tmp_path.rglob("*")) == [target]


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
    assert find_raw("networks/edges.csv", str(tmp_path)) == find_raw(str(file)) == file
    monkeypatch.setenv("DGLCELL_RAW", str(tmp_path))
    assert find_raw("networks/edges.csv") == file
    said = r"raw file 'networks/none.csv' not found\n  got:      looked at .*\n.*\n.*DGLCELL_RAW"
    with pytest.raises(DataError, match=said):
        find_raw("networks/none.csv")
    with pytest.raises(DataError, match=r"raw file 'aaa.* not found"):
        find_raw("a" * 300)  # longer than names of files may be
