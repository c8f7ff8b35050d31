"""Splits of streamed stores: those that are made in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.data import stream_split
from dglcell.data.config import SplitConfig, SubsetConfig, check_streamed_split
from dglcell.data.split import make_split
from dglcell.data.store import Store
from dglcell.data.store_build import build_store
from dglcell.data.stream_split import make_streamed_split
from dglcell.data.table import StrainTable
from dglcell.errors import ConfigError, DataError
from tests.data.strain_tables import PROVENANCE, random_table


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Six genes: gene sets recur, and numbers of deletions are of all sizes."""
    table = random_table(3000, 12, deletions=(1, 6))
    return build_store(table, tmp_path_factory.mktemp("split") / "store", command="test", block_strains=100)


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), by_deletions=st.booleans(), folds=st.sampled_from([None, 3, 5]))
def test_it_is_the_split_that_is_made_in_memory(store: Store, seed: int, by_deletions: bool, folds: int | None) -> None:
    config = SplitConfig(
        seed=seed, by_deletions=by_deletions, folds=folds, fold=None if folds is None else 1, fractions=[0.5, 0.3, 0.2]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_split, "SPLIT_SPAN", 7)
        found = make_streamed_split(config, store, readers=2)
    expected = make_split(config, store.read(), store.sha256)
    assert np.array_equal(found.part, expected.part)
    assert found.sha256 == expected.sha256


@pytest.mark.parametrize("by_deletions", [False, True])
@pytest.mark.parametrize("bits", [8, 16])
def test_large_levels_are_cut_where_they_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_deletions: bool, bits: int
) -> None:
    table = random_table(20_000, 60, deletions=(2, 4), seed=5)
    store = build_store(table, tmp_path / "store", command="test")
    monkeypatch.setattr(stream_split, "SMALL_LEVEL", 100)
    monkeypatch.setattr(stream_split, "BUCKET_BITS", bits)
    for config in (SplitConfig(by_deletions=by_deletions), SplitConfig(by_deletions=by_deletions, folds=4, fold=2)):
        found = make_streamed_split(config, store, readers=2)
        assert found.sha256 == make_split(config, table, store.sha256).sha256


def test_a_gene_set_that_overfills_a_part_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    genes = np.repeat(np.array([[0, 1], [2, 3]], np.int32), [900, 100], axis=0)
    table = StrainTable(
        ("A", "B", "C", "D"),
        genes.ravel(),
        np.arange(1001, dtype=np.int64) * 2,
        {"fitness": np.arange(1000, dtype=np.float32)},
        PROVENANCE,
    )
    store = build_store(table, tmp_path / "store", command="test")
    monkeypatch.setattr(stream_split, "SMALL_LEVEL", 100)
    with pytest.raises(DataError, match="one gene set makes up more of the store"):
        make_streamed_split(SplitConfig(), store, readers=1)


def test_saved_splits_serve(store: Store, tmp_path: Path) -> None:
    saved = make_split(SplitConfig(kind="stratified"), store.read(), store.sha256)
    saved.save(tmp_path / "split.npz")
    config = SplitConfig(kind="file", path=str(tmp_path / "split.npz"))
    assert make_streamed_split(config, store, readers=1).sha256 == saved.sha256
    other = build_store(random_table(50, 9), tmp_path / "other", command="test")
    with pytest.raises(DataError, match="belongs to another store"):
        make_streamed_split(config, other, readers=1)


def test_every_strain_trains(store: Store) -> None:
    config = SplitConfig("none")
    assert make_streamed_split(config, store, 1).sha256 == make_split(config, store.read(), store.sha256).sha256


@pytest.mark.parametrize("kind", ["stratified", "pair_disjoint", "gene_disjoint", "gene_split_1"])
def test_splits_that_need_all_strains_are_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"split.kind: file"):
        check_streamed_split(SplitConfig(kind=kind))
    with pytest.raises(ConfigError, match=r"`split.subset` needs all strains"):
        check_streamed_split(SplitConfig(subset=SubsetConfig(10)))
