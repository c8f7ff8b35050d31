"""A store in worker processes: LMDB forbids what forking would do by itself."""

from __future__ import annotations

import multiprocessing
from multiprocessing.queues import Queue
from pathlib import Path

import lmdb
import numpy as np
import pytest

from dglcell.data.blocks import open_environment
from dglcell.data.store import Store
from dglcell.data.store_build import build_store
from tests.data.strain_tables import random_table


def read_in_worker(store: Store, worker: int, answers: Queue) -> None:
    """Read the store as a worker of a loader does, and answer with what was found."""
    blocks = [float(store.read_block(i).phenotypes["fitness"].sum()) for i in range(len(store.meta.blocks))]
    store.verify()
    answers.put((worker, blocks, float(store.read().phenotypes["fitness"].sum())))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("open_in_parent", [True, False])
def test_two_workers_read_the_store(tmp_path: Path, method: str, open_in_parent: bool) -> None:
    store = build_store(random_table(300, 30), tmp_path / "store", command="test", block_strains=100)
    if open_in_parent:
        store.read_block(0)
        with pytest.raises(lmdb.Error, match="already open in this process"):
            lmdb.open(str(store.path), readonly=True, lock=False)
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    workers = [context.Process(target=read_in_worker, args=(store, i, answers)) for i in range(2)]
    for worker in workers:
        worker.start()
    found = sorted(answers.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0
    blocks = [float(store.read_block(i).phenotypes["fitness"].sum()) for i in range(3)]
    assert [answer[1] for answer in found] == [blocks, blocks]
    assert found[0][2] == found[1][2] == float(store.read().phenotypes["fitness"].sum())


def is_closed(environment: lmdb.Environment) -> bool:
    try:
        environment.info()
    except lmdb.Error:
        return True
    return False


def read_and_look_at_parents(store: Store, inherited: lmdb.Environment, answers: Queue) -> None:
    """Answer whether the parent's environment was open before and is closed after the first read."""
    before = is_closed(inherited)
    store.read_block(0)
    answers.put((before, is_closed(inherited)))


def test_a_forked_worker_does_not_read_through_its_parents_environment(tmp_path: Path) -> None:
    store = build_store(random_table(300, 30), tmp_path / "store", command="test")
    inherited = open_environment(store.path)
    store.read_block(0)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    worker = context.Process(target=read_and_look_at_parents, args=(store, inherited, answers))
    worker.start()
    assert answers.get(timeout=60) == (False, True)
    worker.join(timeout=60)
    assert not is_closed(inherited)


def test_the_parent_still_reads_after_its_children(tmp_path: Path) -> None:
    store = build_store(random_table(300, 30), tmp_path / "store", command="test", block_strains=100)
    before = store.read_block(1).genes
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    worker = context.Process(target=read_in_worker, args=(store, 0, answers))
    worker.start()
    answers.get(timeout=60)
    worker.join(timeout=60)
    np.testing.assert_array_equal(store.read_block(1).genes, before)
    Store(store.path).verify()
