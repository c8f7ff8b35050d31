"""A loss that is not finite is found, with the batch it comes from."""

from __future__ import annotations

import math

import pytest
import torch

from dglcell.training.callbacks import BadBatch, LossWatch, not_finite


def watched(*losses: float) -> LossWatch:
    """A batch of three strains for each loss."""
    watch = LossWatch()
    for i, loss in enumerate(losses):
        strains = torch.arange(3) + 10 * i
        watch.note(torch.tensor(loss, requires_grad=True) * 1, strains, step=i // 2 + 1, epoch=1, batch=i + 1)
    return watch


def test_finite_losses_are_forgotten() -> None:
    watch = watched(0.0, -1e30, 1e30)
    assert watch.found() is None
    assert not watch._pending


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_the_first_bad_batch_is_kept(value: float) -> None:
    watch = watched(1.0, 2.0, value, math.nan, 1.0)
    for wait in (False, True, False):
        found = watch.found(wait=wait)
        assert found is not None
        assert (found.step, found.epoch, found.batch, found.strains) == (2, 1, 3, [20, 21, 22])
        assert str(found.loss) == str(value)


def test_the_error_names_step_batch_and_strains() -> None:
    error = not_finite(BadBatch(step=7, epoch=2, batch=3, loss=math.nan, strains=[0]), list(range(100, 130)))
    first, got, do = str(error).splitlines()
    assert first == "the training loss is not finite in epoch 2"
    assert got.startswith("  got:      nan in step 7, batch 3: strains 100, 101, ")
    assert got.endswith("119 … and 10 more of the store")
    assert "the checkpoints of earlier epochs are kept" in do
