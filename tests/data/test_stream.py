"""Strains read from disk as they are needed."""

from __future__ import annotations

import dataclasses
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.checks import check_values
from dglcell.data.blocks import CRC, DATA_FILE
from dglcell.data.config import PARTS, StreamingConfig
from dglcell.data.datamodule import StreamedBatches, StreamedDataModule, to_batch
from dglcell.data.dataset import EpochBatches, StrainDataset
from dglcell.data.store import Store
from dglcell.data.store_build import build_store
from dglcell.data.stream import Strains, StrainStream, StreamOrder
from dglcell.data.stream_split import Survey, survey
from dglcell.data.table import StrainTable
from dglcell.data.transform import OF_MOMENTS, Moments, Normaliser
from dglcell.errors import ConfigError, DataError, GraphError
from dglcell.graph.vocabulary import Vocabulary
from tests.data.strain_tables import random_table, triples

# The order of a stream: every strain once, the same for any number of ranks, continued anywhere.


orders = st.builds(
    StreamOrder,
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any).map(lambda c: np.array(c, np.int64)),
    window=st.integers(1, 25),
    seed=st.integers(0, 2**32 - 1),
)


def strains(order: StreamOrder, epoch: int, rank: int = 0, world: int = 1, skip: int = 0) -> list[tuple[int, int]]:
    """What a rank reads, as (block, place in it)."""
    found = []
    for segment in order.segments(epoch, rank, world, skip):
        here = [(block, i) for block in segment.blocks.tolist() for i in range(order.counts[block])]
        assert len(here) == segment.size
        found += [here[i] for i in order.shuffle(segment, epoch).tolist()]
    return found


def every(order: StreamOrder) -> list[tuple[int, int]]:
    """All strains, as they lie in the store."""
    return [(block, i) for block, count in enumerate(order.counts.tolist()) for i in range(count)]


@given(order=orders, epoch=st.integers(0, 5))
def test_an_epoch_has_every_strain_once(order: StreamOrder, epoch: int) -> None:
    assert sorted(strains(order, epoch)) == every(order)
    assert all(int(order.counts[blocks[:-1]].sum()) < order.window for blocks in order.windows(epoch)), (
        "a window ends with the block that fills it"
    )


@given(order=orders, epoch=st.integers(0, 3), world=st.integers(1, 5))
def test_ranks_take_turns_as_with_strains_in_memory(order: StreamOrder, epoch: int, world: int) -> None:
    whole = strains(order, epoch)
    for rank in range(world):
        resident = EpochBatches(torch.arange(len(whole)), 1, shuffle=True, seed=0, rank=rank, world_size=world)
        # The resident order is undone, so that what is left is which places of it a rank takes.
        torch_order = torch.cat(list(EpochBatches(torch.arange(len(whole)), len(whole), shuffle=True, seed=0)))
        place = {strain: i for i, strain in enumerate(torch_order.tolist())}
        expected = [whole[place[max(strain, -1 - strain)]] for batch in resident for strain in batch.tolist()]
        assert strains(order, epoch, rank, world) == expected


@given(order=orders, world=st.integers(1, 4), skip=st.integers(0, 30), data=st.data())
def test_it_goes_on_anywhere(order: StreamOrder, world: int, skip: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, world - 1))
    assert strains(order, 1, rank, world, skip) == strains(order, 1, rank, world)[skip:]


def test_epochs_and_seeds_differ_and_far_strains_meet() -> None:
    order = StreamOrder(np.full(40, 50), window=500, seed=3)
    assert strains(order, 0) != strains(order, 1)
    assert strains(order, 0) != strains(StreamOrder(order.counts, 500, 4), 0)
    assert strains(order, 0) == strains(StreamOrder(order.counts, 500, 3), 0)
    blocks = {block for block, _ in strains(order, 0)[:100]}
    assert len(blocks) > 5
    assert max(blocks) - min(blocks) > 10


# Streamed strains: those of the resident data set, every one once, from any number of ranks, in bounded memory.


TABLE = random_table(700, 30, deletions=(0, 5), columns=True)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Seven hundred strains in small blocks; two phenotypes."""
    return build_store(
        TABLE, tmp_path_factory.mktemp("stream") / "store", command="test", block_strains=37, allow_empty=True
    )


def parts_of(strains: int, seed: int = 0) -> np.ndarray:
    """Mostly training; some unused."""
    return np.random.default_rng(seed).choice([0, 1, 2, 255], strains, p=[0.7, 0.1, 0.1, 0.1]).astype(np.uint8)


def look(
    store: Store, *, window: int = 100, readers: int = 3, genes: list[str] | None = None, **more: object
) -> Survey:
    """A survey, by default with all genes known."""
    vocabulary = Vocabulary.of(genes or store.meta.names)
    return survey(store, vocabulary, parts_of(len(store)), StreamingConfig(window, readers), **more)


def resident(store: Store, names: list[str] | None = None, **more: object) -> StrainDataset:
    """All strains of the store in memory."""
    return StrainDataset.from_table(store.read(), Vocabulary.of(names or store.meta.names), **more)


def assert_same_strains(found: Strains, expected: StrainDataset, max_deletions: int) -> None:
    """A streamed batch is what the resident data set gathers for the same strains."""
    place = {row: i for i, row in enumerate(expected.rows.tolist())}
    numbers = torch.tensor([place[row] for row in found.rows.tolist()])
    want = expected.gather(numbers, int(expected.offsets.diff()[numbers].sum()))
    got = to_batch(found, max_deletions, CPU)
    assert torch.equal(got.genotypes.genes, want.genotypes.genes)
    assert torch.equal(got.genotypes.offsets, want.genotypes.offsets)
    assert got.genotypes.max_deletions == want.genotypes.max_deletions
    torch.testing.assert_close(got.labels, want.labels, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
def test_every_strain_once_an_epoch_over_all_ranks(store: Store, world: int) -> None:
    found, all_of_them = look(store), resident(store)
    expected = np.flatnonzero(parts_of(len(store)) == 0).tolist()
    orders = []
    for epoch in range(2):
        rows = []
        for rank in range(world):
            batches = StreamedBatches(found.stream, 16, rank=rank, world_size=world)
            batches.set_epoch(epoch)
            mine = list(batches)
            assert len(mine) == len(batches)
            assert {batch.num_strains for batch in mine[:-1]} == {16}
            fills = len(expected) % world and rank >= len(expected) % world
            for batch in mine[:-1] if fills else mine:
                assert_same_strains(batch, all_of_them, found.stream.max_deletions)
            assert mine[-1].labels.isnan().all(1).tolist() == [False] * (len(mine[-1].rows) - fills) + [True] * fills
            rows.append(torch.cat([batch.rows for batch in mine]))
        assert len({len(one) for one in rows}) == 1
        order = torch.stack(rows, 1).flatten().tolist()
        assert sorted(order[: len(expected)]) == expected
        assert order[len(expected) :] == order[: -len(expected) % world]
        orders.append(order)
    assert orders[0] != orders[1]


@settings(max_examples=25)
@given(first=st.integers(0, 20), world=st.integers(1, 3), size=st.integers(1, 70))
def test_an_epoch_goes_on_where_it_stopped(store: Store, first: int, world: int, size: int) -> None:
    stream = look(store, readers=1).stream
    whole = list(stream.batches(2, size, world - 1, world))
    rest = list(stream.batches(2, size, world - 1, world, first))
    assert [batch.rows.tolist() for batch in rest] == [batch.rows.tolist() for batch in whole[first:]]
    assert all(torch.equal(a.genes, b.genes) for a, b in zip(rest, whole[first:], strict=True))


def test_neither_readers_nor_ranks_change_the_order(store: Store) -> None:
    order = [batch.rows.tolist() for batch in look(store, readers=1).stream.batches(0, 8)]
    assert order == [batch.rows.tolist() for batch in look(store, readers=4).stream.batches(0, 8)]
    halves = [list(look(store).stream.batches(0, 4, rank, 2)) for rank in range(2)]
    for whole, left, right in zip(order, *halves, strict=True):
        both = torch.stack([left.rows, right.rows], 1) if len(left.rows) == len(right.rows) else None
        assert both is not None
        assert both.flatten().tolist()[: len(whole)] == whole


def test_the_other_parts_are_resident(store: Store) -> None:
    found, all_of_them = look(store), resident(store)
    part = torch.from_numpy(parts_of(len(store)))
    for code in (1, 2):
        assert set((part == code).nonzero().squeeze(1).tolist()) <= set(found.resident.rows.tolist())
    assert not (part[found.resident.rows] == 255).any()
    every = torch.arange(len(found.resident))
    batch = found.resident.gather(every, len(found.resident.genes))
    want = all_of_them.gather(found.resident.rows, len(found.resident.genes))
    assert torch.equal(batch.genotypes.genes, want.genotypes.genes)
    assert found.resident.kinds == all_of_them.kinds
    assert found.resident.units == all_of_them.units


def test_strains_with_unknown_genes_or_without_labels_are_left_out(store: Store) -> None:
    genes = list(store.meta.names[3:])
    with pytest.raises(GraphError, match=r"data\.unknown_genes: drop"):
        look(store, genes=genes)
    found = look(store, genes=genes, unknown="drop", phenotypes=["s_score"])
    expected = resident(store, genes, unknown="drop", phenotypes=["s_score"])
    part = torch.from_numpy(parts_of(len(store)))[expected.rows]
    rows = torch.cat([batch.rows for batch in found.stream.batches(0, 50)])
    assert sorted(rows.tolist()) == expected.rows[part == 0].tolist()
    assert found.resident.names == expected.names
    for batch in found.stream.batches(0, 50):
        assert_same_strains(batch, expected, found.stream.max_deletions)
    with pytest.raises(DataError, match="no phenotype 'growth'"):
        look(store, phenotypes=["growth"])


@pytest.mark.parametrize("kind", OF_MOMENTS)
def test_labels_are_normalised_as_in_memory(tmp_path: Path, kind: str) -> None:
    table = random_table(2000, 30, columns=True)
    if kind == "logistic":
        table = StrainTable(
            table.names, table.genes, table.offsets, {"p": (table.genes[table.offsets[:-1]] % 2).astype(np.float32)},
            table.provenance,
        )  # fmt: skip
    store = build_store(table, tmp_path / "store", command="test", block_strains=50)
    part = parts_of(len(store))
    found = survey(store, Vocabulary.of(store.meta.names), part, StreamingConfig())
    data = resident(store)
    expected = Normaliser.fit(data.labels[torch.from_numpy(part) == 0], data.phenotypes, kind)
    got = Normaliser.of_moments(found.moments, data.phenotypes, kind)
    torch.testing.assert_close(got.shift, expected.shift, rtol=3e-7, atol=0)
    torch.testing.assert_close(got.scale, expected.scale, rtol=3e-7, atol=0)


@given(st.lists(st.lists(st.sampled_from([1e8 + 1, 1e8 + 2, -3.0, float("nan")]), max_size=5), min_size=1, max_size=6))
def test_moments_add_up(pieces: list[list[float]]) -> None:
    columns = [torch.tensor(piece, dtype=torch.float64).view(-1, 1) for piece in pieces]
    total = Moments.of(columns[0])
    for column in columns[1:]:
        total += Moments.of(column)
    values = torch.cat(columns)
    values = values[~values.isnan()]
    assert total.number.item() == len(values)
    if len(values):
        torch.testing.assert_close(total.mean[0], values.mean())
        torch.testing.assert_close(total.square[0], (values - values.mean()).square().sum(), atol=1e-3, rtol=1e-9)
        assert (total.low.item(), total.high.item()) == (values.min().item(), values.max().item())


def test_labels_that_cannot_be_normalised_are_refused() -> None:
    for labels, message in (
        (torch.full((3, 1), torch.nan), "no label in the training part"),
        (torch.ones(3, 1), "constant"),
        (torch.tensor([[0.0], [2.0]]), "no probabilities"),
    ):
        kind = "logistic" if "prob" in message else "standard"
        with pytest.raises(DataError, match=message):
            Normaliser.of_moments(Moments.of(labels), ("fitness",), kind)


def test_a_damaged_block_is_refused_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    store = build_store(random_table(3000, 30), tmp_path / "store", command="test", block_strains=100)
    found = look(store, window=200)
    _damage(store, block=17)
    again = look_without_survey(found, Store(store.path))
    with pytest.raises(DataError, match="block 17 of 30 is damaged"):
        list(again.batches(0, 10))
    with pytest.raises(DataError, match="block 17 of 30 is damaged"):
        look(Store(store.path))


def test_a_store_built_anew_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = build_store(random_table(300, 30), path, command="test")
    found = look(store)
    fresh = look_without_survey(found, Store(path))
    build_store(random_table(300, 30, seed=1), path, command="test", overwrite=True)
    with pytest.raises(DataError, match="built anew while it was in use"):
        list(fresh.batches(0, 10))


def look_without_survey(found: Survey, store: Store) -> StrainStream:
    """The stream of another opening of the store."""
    return dataclasses.replace(found.stream, reader=dataclasses.replace(found.stream.reader, store=store))


def _damage(store: Store, block: int) -> None:
    """Change a byte of a block, past its checksum."""
    with store._environment().begin(buffers=True) as transaction:
        value = bytes(transaction.get(block.to_bytes(8, "big")))
    content = (store.path / DATA_FILE).read_bytes()
    at = content.index(value) + CRC.size + 40
    changed = bytes([content[at] ^ 1])
    with (store.path / DATA_FILE).open("r+b") as file:
        file.seek(at)
        file.write(changed)


def test_memory_does_not_grow_with_the_store(tmp_path: Path) -> None:
    peaks = []
    for strains in (60_000, 240_000):
        store = build_store(triples(strains), tmp_path / str(strains), command="test")
        part = np.zeros(strains, np.uint8)
        part[:1000], part[1000:2000] = 1, 2
        found = survey(store, Vocabulary.of(store.meta.names), part, StreamingConfig(window=5_000))
        tracemalloc.start()
        seen = sum(batch.num_strains for batch in found.stream.batches(0, 128))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert seen == strains - 2000
    assert peaks[1] < 1.3 * peaks[0] + 2**20


def test_the_loader_follows_epochs_and_begins_where_it_is_told(store: Store) -> None:
    found = look(store)
    part = torch.from_numpy(parts_of(len(store)))[found.resident.rows]
    parts = {name: (part == code).nonzero().squeeze(1) for code, name in enumerate(PARTS)}
    module = StreamedDataModule(found.stream, found.resident, parts, batch_size=9, eval_batch_size=5, seed=1)
    module.first_batch = 4
    loader = module.train_dataloader()
    rows = [[batch.rows.tolist() for batch in loader] for _ in range(2)]
    assert rows[0] == rows[1][4:]
    assert len(rows[1]) == len(loader)
    loader.sampler.set_epoch(1)
    assert [batch.rows.tolist() for batch in loader] != rows[1]
    for batch in (*module.train_dataloader(), *module.val_dataloader()):
        made = module.transfer_batch_to_device(batch, CPU, 0)
        assert len(made.labels) == made.genotypes.num_strains


@pytest.mark.parametrize(("key", "config"), [("window", StreamingConfig(0, 1)), ("readers", StreamingConfig(1, 0))])
def test_settings_are_checked(key: str, config: StreamingConfig) -> None:
    with pytest.raises(ConfigError, match=f"`data.streaming.{key}` is too small"):
        check_values(config, "data.streaming")
