"""The order of a stream: every strain once, the same for any number of ranks, continued anywhere."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.dataset import EpochBatches
from dglcell.data.stream import StreamOrder

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
        expected = [whole[place[strain]] for batch in resident for strain in batch.tolist()]
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
