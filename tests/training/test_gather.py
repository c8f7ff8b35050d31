"""Rows of all ranks, in real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from dglcell.training.distributed import collect_rows, leave_group

SIZES = (3, 0, 2)


def gather_in_group(rank: int, folder: str) -> None:
    """One process: gathers its rows and saves what it sees."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=len(SIZES))
    rows = torch.arange(SIZES[rank] * 2.0).view(-1, 2) + 100 * rank
    torch.save(collect_rows(rows), f"{folder}/{rank}.pt")
    leave_group()
    assert not dist.is_initialized()


@pytest.mark.slow
def test_ranks_with_different_numbers_of_rows_see_all_of_them(tmp_path: Path) -> None:
    mp.spawn(gather_in_group, (str(tmp_path),), nprocs=len(SIZES))
    expected = torch.tensor([[0.0, 1], [2, 3], [4, 5], [200, 201], [202, 203]])
    for rank in range(len(SIZES)):
        assert torch.equal(torch.load(tmp_path / f"{rank}.pt"), expected)


def test_a_single_process_gets_its_own_rows() -> None:
    rows = torch.ones(3, 2)
    assert collect_rows(rows) is rows
    leave_group()
