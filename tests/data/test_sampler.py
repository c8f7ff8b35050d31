"""Batches of strain numbers: every strain once, the same for the same seed, fair between ranks."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.dataset import EpochBatches


def ranks(
    n: int, batch_size: int, world: int, *, shuffle: bool, seed: int = 0, epoch: int = 0
) -> list[list[list[int]]]:
    """Batches of every rank; strain numbers are 100, 101, …"""
    found = []
    for rank in range(world):
        sampler = EpochBatches(
            torch.arange(100, 100 + n), batch_size, shuffle=shuffle, seed=seed, rank=rank, world_size=world
        )
        sampler.set_epoch(epoch)
        batches = [batch.tolist() for batch in sampler]
        assert len(batches) == len(sampler)
        found.append(batches)
    return found


@given(n=st.integers(1, 60), batch_size=st.integers(1, 20), world=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_every_rank_gets_as_many_batches_and_every_strain_is_seen(
    n: int, batch_size: int, world: int, seed: int
) -> None:
    for shuffle in (False, True):
        found = ranks(n, batch_size, world, shuffle=shuffle, seed=seed)
        assert len({len(batches) for batches in found}) == 1
        assert all(len(batch) <= batch_size for batches in found for batch in batches)
        seen = [strain for batches in found for batch in batches for strain in batch]
        assert set(seen) == set(range(100, 100 + n))
        if not shuffle:
            assert len(seen) == n
        elif n >= world:
            assert len(seen) == -(-n // world) * world


def test_in_evaluation_the_order_is_kept() -> None:
    assert ranks(5, 2, 1, shuffle=False) == [[[100, 101], [102, 103], [104]]]
    assert ranks(5, 2, 2, shuffle=False) == [[[100, 102], [104]], [[101], [103]]]


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    first = ranks(40, 7, 1, shuffle=True, seed=3, epoch=2)
    assert first == ranks(40, 7, 1, shuffle=True, seed=3, epoch=2)
    assert first != ranks(40, 7, 1, shuffle=True, seed=3, epoch=3)
    assert first != ranks(40, 7, 1, shuffle=True, seed=4, epoch=2)
    torch.manual_seed(99)
    assert first == ranks(40, 7, 1, shuffle=True, seed=3, epoch=2)


def test_a_batch_of_two_ranks_together_is_a_batch_of_one() -> None:
    whole = ranks(40, 10, 1, shuffle=True)[0]
    halves = ranks(40, 5, 2, shuffle=True)
    for i, batch in enumerate(whole):
        assert sorted(batch) == sorted(halves[0][i] + halves[1][i])
