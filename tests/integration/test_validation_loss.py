"""The loss of the validation part is that of the whole part, however it is cut into batches and processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import Tensor

from dglcell.losses.config import LossConfig
from dglcell.losses.loss import Loss, LossTerms, label_sums, mean_cost
from dglcell.models.model import Prediction
from dglcell.runs.directory import RunDirectory
from tests.tiny import BARE, Tiny, dglcell, history


class Own(Loss):
    """A loss as a user writes one, which knows nothing of other processes."""

    def __init__(self, config: LossConfig, epochs: int) -> None:
        super().__init__()

    def forward(self, prediction: Prediction, target_BT: Tensor, epoch: int) -> LossTerms:
        error_BT = (prediction.phenotypes - target_BT.nan_to_num()).square()
        return LossTerms(mean_cost(label_sums(error_BT, ~target_BT.isnan()), None).add(1e-9).sqrt())


LOSSES = {
    "own": [f"loss={{name: {__name__}:Own}}"],
    "mse": ["loss=mse"],
    "weighted": ["loss={name: mse, phenotype_weights: [1.0, 3.0]}", "data.phenotypes=[fitness, digenic_interaction]"],
    "wasserstein": ["loss={name: mle_wass_supcr, wasserstein: 0.5, supcr: 0.1, buffer_size: 32}"],
    "distribution": ["loss={name: mse_dist_supcr, distribution: 0.5, supcr: 0.1}"],
    "gaussian": ["loss=gaussian"],
    "dango": ["loss={name: dango, transition_epoch: 1}", "model={name: dango, hidden: 8, heads: 2, activation: tanh}"],
}


def validation_loss(tiny: Tiny, runs: Path, options: list[str], processes: int, batch: int) -> float:
    """Of one epoch with hardly any learning rate, so that all runs have the same weights."""
    keys = [*BARE, *options, "trainer.epochs=1", "optimizer.lr=1.0e-12", f"data.eval_batch_size={batch}"]
    keys += [f"trainer.devices={processes}", f"trainer.strategy={'ddp' if processes > 1 else 'auto'}"]
    keys += ["split.subset.size=205", "split.fractions=[0.6,0.2,0.2]", f"data.batch_size={60 // processes}"]
    if processes == 1:
        tiny.train(runs, *keys)
    else:
        done = dglcell("train", tiny.file, *tiny.overrides(runs, *keys), cwd=runs.parent)
        assert done.returncode == 0, done.stderr
    (row,) = history(RunDirectory(runs / "tiny" / "seed-0"))
    return row["validation/loss"]


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_batches_and_processes_do_not_count(tiny: Tiny, tmp_path: Path, name: str) -> None:
    whole = validation_loss(tiny, tmp_path / "whole", LOSSES[name], 1, 1000)
    for processes, batch in [(1, 7), (1, 64), (2, 7), (3, 1000)]:
        found = validation_loss(tiny, tmp_path / f"{processes}-{batch}", LOSSES[name], processes, batch)
        # The noise level of `gaussian` is estimated in training, whose batches differ.
        assert found == pytest.approx(whole, rel=1e-5), (processes, batch)
