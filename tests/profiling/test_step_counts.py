"""Copies to a device, counted by bytes."""

from __future__ import annotations

import torch

from dglcell.profiling.loop import CountCopies, StepCounts, counted


def test_bytes_of_tensors_that_leave_the_host_are_counted() -> None:
    counts = StepCounts()
    here, there = torch.zeros(5, dtype=torch.int64), torch.zeros(7, device="meta")
    with CountCopies(counts):
        # 40 bytes; then 28 into a tensor that is there, which came as 56.
        here.to("meta", non_blocking=True)
        there.copy_(torch.zeros(7, dtype=torch.float64))
        # These stay where they are.
        here.to(torch.float32)
        there.to(torch.float64)
        torch.zeros(5).copy_(here)
        torch.ones(3, device="meta") + 1
    assert counts == StepCounts(bytes_to_device=68)


def test_a_cpu_has_no_device_to_copy_to_or_wait_for() -> None:
    with counted(torch.device("cpu")) as counts:
        torch.zeros(3).sum().item()
    assert counts == StepCounts(0, None)
