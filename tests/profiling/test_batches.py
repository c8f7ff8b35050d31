"""Batches over several epochs."""

from __future__ import annotations

from itertools import islice

import torch

from dglcell.data.dataset import EpochBatches
from dglcell.profiling.measure import repeated


def test_epochs_follow_each_other_each_in_its_own_order() -> None:
    epoch = EpochBatches(torch.arange(10), 4, shuffle=True, seed=3)
    batches = list(islice(repeated(epoch), 8))
    assert [len(batch) for batch in batches] == [4, 4, 2, 4, 4, 2, 4, 4]
    for number in (0, 1):
        epoch.set_epoch(number)
        expected = torch.cat(list(epoch))
        assert torch.equal(torch.cat(batches[3 * number : 3 * number + 3]), expected)
    assert not torch.equal(torch.cat(batches[:3]), torch.cat(batches[3:6]))
