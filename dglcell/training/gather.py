"""Collect rows of all ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def gather_rows(rows: Tensor) -> Tensor:
    """Concatenate ``rows`` [n_r, …] of every rank; n_r may differ. A single process gets its own rows back."""
    if not (dist.is_available() and dist.is_initialized()):
        return rows
    world_size = dist.get_world_size()
    count = torch.tensor([len(rows)], device=rows.device)
    counts = [torch.zeros_like(count) for _ in range(world_size)]
    dist.all_gather(counts, count)
    lengths = [int(c) for c in counts]
    padded = torch.cat([rows, rows.new_zeros(max(lengths) - len(rows), *rows.shape[1:])])
    everyone = [torch.empty_like(padded) for _ in range(world_size)]
    dist.all_gather(everyone, padded)
    return torch.cat([part[:length] for part, length in zip(everyone, lengths, strict=True)])
