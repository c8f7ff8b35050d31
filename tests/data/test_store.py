"""Stores: what is refused and written, what a crash leaves; read by many, on disks that fill up."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.queues import Queue
from pathlib import Path

import lmdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.cli import main
from dglcell.data.columns import covariate_columns
from dglcell.data.store import Store, StoreMeta, build_store, describe_store, format_stats, value_key, verify_store
from dglcell.data.strains import Strains
from dglcell.errors import DataError, GenotypeError
from tests.data.strain_tables import (
    PROVENANCE,
    assert_same_strains,
    changed,
    random_table,
    table_of,
    triples,
    with_columns,
)
from tests.examples import examples
from tests.small_disk import make_read_only, small_disk
from tests.tiny import TINY


@pytest.fixture
def table() -> Strains:
    return random_table(500, 40, seed=1, columns=True)


@pytest.fixture
def store(table: Strains, tmp_path: Path) -> Store:
    return build_store(table, tmp_path / "store", command="dglcell data build here.yaml")


def rewrite(store: Store, key: bytes, value: bytes | None) -> None:
    """Change one record of a store behind its back."""
    with lmdb.open(str(store.path), lock=False) as environment, environment.begin(write=True) as transaction:
        if value is None:
            transaction.delete(key)
        else:
            transaction.put(key, value)


def test_what_is_read_is_what_was_written(store: Store, table: Strains) -> None:
    found = verify_store(store.path).read()
    assert found.names == tuple(sorted(table.names))
    assert found.provenance == store.meta.provenance == PROVENANCE
    assert found.units == {"fitness": "1/h", "s_score": ""}
    assert found.targets.dtype == np.int32
    meta = store.meta
    assert (meta.command, meta.created[-6:], meta.schema) == ("dglcell data build here.yaml", "+00:00", 3)
    assert StoreMeta.from_bytes(meta.to_bytes(), "here") == meta
    assert_same_strains(pickle.loads(pickle.dumps(store)).read(), table)


def test_columns_may_be_of_several_values(store: Store, table: Strains) -> None:
    parts = [table.slice(0, 200), table.slice(200, 500)]
    for number, part in enumerate(parts):
        for column, values in enumerate(part.stored().values()):
            rewrite(store, value_key(number, column), values.tobytes())
    rewrite(store, b"meta", replace(store.meta, values=(200, 300)).to_bytes())
    assert_same_strains(Store(store.path).read(), table)


def test_a_strain_of_three_deletions_takes_far_less_than_24_bytes(tmp_path: Path) -> None:
    store = build_store(triples(100_000), tmp_path / "store", command="test")
    status = (store.path / "data.mdb").stat()
    labels = 4
    assert status.st_size / 100_000 < 12 < 24 + labels
    content = 100_000 * (3 * 2 + labels)
    assert status.st_size - len(store.meta.to_bytes()) < 1.02 * content, "hardly any page is empty"
    assert status.st_blocks * 512 <= status.st_size + 4096
    assert sorted(os.listdir(store.path)) == ["data.mdb", "data.mdb.sha256"]


def test_indices_of_many_genes_take_four_bytes(tmp_path: Path) -> None:
    table = triples(200, genes=70_000)
    store = build_store(table, tmp_path / "store", command="test")
    assert store.read().targets.max() > 65_535
    assert_same_strains(store.read(), table)


def test_a_store_that_was_built_anew_is_not_mixed_with_the_old(store: Store) -> None:
    build_store(random_table(50, 40), store.path, command="test", overwrite=True)
    with pytest.raises(DataError, match=r"was built anew while it was in use\n.*open it again"):
        store.read()
    assert len(Store(store.path).read()) == 50


# What is no store, or a damaged one.


def edited(store: Store, **changes: object) -> None:
    content = json.loads(store.meta.to_bytes())
    rewrite(store, b"meta", json.dumps({**content, **changes}).encode())


def cut(store: Store, keep: int) -> None:
    os.truncate(store.path / "data.mdb", keep if keep >= 0 else (store.path / "data.mdb").stat().st_size + keep)


CUT = "is cut short\n|cannot be opened as a store\n"
DAMAGE: list[tuple[Callable[[Store], object], str]] = [
    (lambda store: shutil.rmtree(store.path), r"store' does not exist\n.*\n.*dglcell data build"),
    (lambda store: (store.path / "data.mdb").unlink(), r"is not a store: it has no data.mdb\n"),
    (lambda store: (store.path / "data.mdb").write_bytes(b"not a database" * 1000), "cannot be opened as a store\n"),
    (lambda store: rewrite(store, b"meta", None), r"LMDB directory but not a store of strains\n.*record named 'meta'"),
    *((lambda of, text=text: rewrite(of, b"meta", text), "damaged") for text in (b"", b"not json", b"[1]", b"{}")),
    (lambda store: edited(store, command="mine"), "damaged"),
    (lambda store: edited(store, schema=4, version="9.9"), r"a newer .*\n.*by dglcell 9.9\n.*schema 3\n.* update"),
    (lambda store: edited(store, schema=2), r"an older format .*\n.*schema 2, .*\n.*schema 3\n.* build it anew"),
    *(
        (lambda of, at=at, text=text: rewrite(of, value_key(0, at), text), r"its column '.*' does not fit its hash\n")
        for at in range(4)
        for text in (b"", bytes(7), bytes(100_000))
    ),
    *((lambda of, keep=keep: cut(of, keep), CUT) for keep in (0, 100, 4096, 20_000, -4096, -1)),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE)
def test_a_damaged_store_is_refused(store: Store, damage: Callable[[Store], object], message: str) -> None:
    damage(store)
    with pytest.raises(DataError, match=message):
        Store(store.path).read()


def test_the_whole_file_is_compared_with_its_hash(store: Store) -> None:
    assert verify_store(store.path).sha256 == store.sha256
    recorded = store.path / "data.mdb.sha256"
    for change in (lambda: recorded.write_text("0" * 64), recorded.unlink):
        change()
        with pytest.raises(DataError, match=r"does not fit the hash in data\.mdb\.sha256\n.*\n.*(0{64}|nothing)"):
            verify_store(store.path)


# Disks that are full or cannot be written to: one clear error, and nothing half-written.


@pytest.mark.parametrize("kilobytes", [8, 100])
def test_a_full_disk_leaves_nothing_of_a_store(tmp_path: Path, kilobytes: int) -> None:
    with small_disk(tmp_path / "disk", kilobytes) as disk:
        with pytest.raises(DataError, match=r"cannot be written; nothing of it is left behind\n  got: "):
            build_store(triples(30_000), disk / "store", command="test")
        assert os.listdir(disk) == []


def test_a_read_only_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "conf.yaml"
    conf.write_text(TINY)
    options = ["data.source.insilico.pairs=none", "split.subset=null"]
    with small_disk(tmp_path / "disk", 600) as disk:
        make_read_only(disk)
        assert main(["data", "build", str(conf), *options, f"data.store={disk / 'store'}"]) == 2
        assert os.listdir(disk) == []
    message = capsys.readouterr().err
    assert "Traceback" not in message
    assert f"{disk}" in message
    assert "Read-only file system\n  do:       choose a place that you may read and write" in message


# A store in worker processes: LMDB forbids what forking would do by itself.


def read_in_worker(store: Store, worker: int, answers: Queue) -> None:
    """Read the store as another process does, and answer with what was found."""
    verify_store(store.path)
    answers.put((worker, float(store.read().phenotypes["fitness"].sum())))


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_two_workers_read_the_store(tmp_path: Path, method: str) -> None:
    store = build_store(random_table(300, 30), tmp_path / "store", command="test")
    expected = float(store.read().phenotypes["fitness"].sum())
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    workers = [context.Process(target=read_in_worker, args=(store, i, answers)) for i in range(2)]
    for worker in workers:
        worker.start()
    found = sorted(answers.get(timeout=300) for _ in workers)
    for worker in workers:
        worker.join(timeout=300)
        assert worker.exitcode == 0
    assert found[0][1] == found[1][1] == expected


def test_threads_read_the_store_at_the_same_time(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        read = [*pool.map(lambda _: store.read().sha256, range(32))]
    assert set(read) == {store.sha256}


# Strains that a store does not take: each is named by its number.


NAN, THREE = np.nan, table_of([["A"], ["B"], ["C"]])
UNLABELLED = changed(THREE, a=np.array([1, NAN, NAN]), b=np.array([NAN, 2, NAN]))
WRONG_NUMBERS = [
    ("phenotype", np.inf, r"strain 2 has an unusable phenotype of 'fitness'\n.*inf\n.*a finite number"),
    ("phenotype", 1e39, "strain 2 has an unusable phenotype"),
    ("p_value", 1.5, r"strain 2 has an unusable p_value of 'fitness'\n.*1.5\n.*from 0 to 1"),
    ("p_value", -0.1, "unusable p_value"),
    ("sd", -1.0, r"strain 2 has an unusable sd of 'fitness'\n.*-1.0\n.*0 or more"),
    ("sd", np.inf, "unusable sd"),
    ("replicates", 1.5, r"strain 1 has an unusable replicates of 'fitness'\n.*nan\n.*a whole number, 0 or more"),
]
REFUSED: list[tuple[Strains, str]] = [
    (table_of([["A", "B"]] * 5 + [["C", "A", "C"], ["A", "A"]]), "^strain 6 deletes gene 'C' twice\n.*distinct genes"),
    (replace(table_of([["A", "B"], ["C"]]), names=("A", "A", "C")), "^strain 1 deletes gene 'A' twice"),
    (table_of([["A"], [], ["B"]]), r"^strain 2 deletes no gene\n.*0\n.*1 to 255 genes.*\n.*drop the row"),
    (table_of([["A"], [f"G{i:03d}" for i in range(256)]]), r"^strain 2 deletes too many genes\n.*256\n.*1 to 255"),
    (UNLABELLED, r"^strain 3 has no label at all\n.*nan\n.*one of a, b\n.*drop the row"),
    (changed(table_of([["A"]])), r"^no phenotype: a store needs at least one\n.*name a phenotype column"),
    (table_of([]), r"^no strains: a store needs at least one\n.*check the source"),
    *(
        (with_columns(table_of([["A"]]), **{kind: {"tau": np.ones(1)}}), f"^a column belongs to .*: {kind} of tau\n")
        for kind in ("p_value", "sd", "replicates")
    ),
    *((with_columns(THREE, **{kind: {"fitness": np.array([NAN, of, 0.5])}}), said) for kind, of, said in WRONG_NUMBERS),
    (replace(THREE, provenance=replace(PROVENANCE, parameters={"path": Path("x")})), "not JSON serializable"),
]


@pytest.mark.parametrize(("table", "message"), REFUSED)
def test_strains_that_a_store_does_not_take(tmp_path: Path, table: Strains, message: str) -> None:
    with pytest.raises((DataError, GenotypeError, TypeError), match=message):
        build_store(table, tmp_path / "store", command="test")
    assert os.listdir(tmp_path) == []


def test_the_wild_type_may_be_a_strain_in_some_covariate(tmp_path: Path) -> None:
    table = table_of([["A"], [], ["B"]])
    table = table.with_(columns={**table.columns, **covariate_columns({"medium": ["lb", "lb", "m9"]})})
    assert build_store(table, tmp_path / "store", command="test").read().genotypes == table.genotypes


@examples(20)
@given(
    strains=st.integers(1, 60),
    deletions=st.tuples(st.integers(1, 6), st.integers(1, 6)).map(lambda pair: (min(pair), max(pair))),
    seed=st.integers(0, 1000),
)
def test_a_table_comes_back(
    tmp_path_factory: pytest.TempPathFactory, strains: int, deletions: tuple[int, int], seed: int
) -> None:
    table = random_table(strains, 8, deletions, seed, columns=True)
    store = build_store(table, tmp_path_factory.mktemp("stores") / "a", command="test")
    assert_same_strains(store.read(), table)
    assert store.sha256 == table.sha256 == store.read().sha256


def test_missing_labels_hash_alike_whatever_their_bits(tmp_path: Path) -> None:
    table = random_table(3, 5)
    odd = np.array([1, np.nan, 1], np.float32)
    odd.view(np.uint32)[1] |= 0x80000123
    fitness = np.ones(3)
    tables = [changed(table, a=np.array([1, np.nan, 1]), b=fitness), changed(table, a=odd, b=fitness)]
    stores = [build_store(of, tmp_path / str(i), command="t") for i, of in enumerate(tables)]
    assert stores[0].sha256 == stores[1].sha256 == tables[0].sha256 == tables[1].sha256


def test_an_existing_store_stays_unless_it_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "store"
    build_store(table_of([["A"]]), path, command="test")
    with pytest.raises(DataError, match=r"exists already\n.*--overwrite"):
        build_store(table_of([["A"], ["B"]]), path, command="test")
    with pytest.raises(GenotypeError):
        build_store(table_of([["A"], ["B", "B"]]), path, command="test", overwrite=True)
    assert len(Store(path).read()) == 1
    assert len(build_store(table_of([["A"], ["B"]]), path, command="test", overwrite=True)) == 2
    assert os.listdir(tmp_path) == ["store"]


def test_what_is_no_store_is_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "thesis.tex"
    file.write_text("years of work")
    for path, got in ((tmp_path, "thesis.tex"), (file, "a file")):
        with pytest.raises(DataError, match=rf"will not be replaced: it is not a store\n.*{got}\n.*\n.*choose another"):
            build_store(table_of([["A"]]), path, command="test", overwrite=True)
    assert file.read_text() == "years of work"


def test_the_content_hash_is_the_same_in_every_version() -> None:
    table = table_of([["YAL001C", "YBR020W"], ["YCL018W"], []], fitness=[0.5, np.nan, 1.0])
    table = with_columns(table, sd={"fitness": np.array([0.1, np.nan, 0.2], np.float32)})
    table = changed(table, **table.phenotypes, s_score=np.array([1, 2, np.nan]))
    assert table.sha256[:16] == "5adff21bf1c93c16"


def test_a_store_tells_what_it_holds_and_where_it_came_from(tmp_path: Path) -> None:
    strains = [["A", "B"], ["B", "A"], ["B"], ["C", "A", "B"]]
    table = with_columns(table_of(strains, fitness=[1, 2, 3, NAN]), replicates={"fitness": np.array([1, 3, 2, 0])})
    table = changed(table, **table.phenotypes, s_score=np.ones(4))
    store = build_store(table, tmp_path / "s", command="dglcell data build x.yaml")
    text = format_stats(store)
    assert text.startswith(describe_store(store))
    for said in (
        "4 with 8 deletions over 3 gene names",
        "fitness [1], s_score",
        "made_up: Random strains",
        "Nobody 2026",
        "CC0",
        "https://example.org/strains.tsv",
        "strains.tsv  sha256 abababababab…",
        "rows read 12, rows dropped 2",
        "unknown=drop, threshold=0.5",
        "dglcell data build x.yaml",
        store.sha256,
        "fitness: 2 strains with 2 to 3 measurements",
        "deletions     1 with 1, 2 with 2, 1 with 3",
        "3 of 3 names",
    ):
        assert said in text
    row = next(line for line in text.splitlines() if line.startswith("fitness "))
    assert row.split() == ["fitness", "3", "2", "0.8165", "1", "1.5", "2", "2.5", "3"]
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80
