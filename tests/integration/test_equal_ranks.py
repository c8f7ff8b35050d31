"""As many processes as there are learn what one does from the same global batches."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import read_checkpoint
from tests.tiny import BARE, Tiny, dglcell, history

# 241 training strains in global batches of 60: the last one of an epoch is a single strain, which one rank gets, and is
# accumulated alone. Two to five ranks do not divide them evenly.
GLOBAL_BATCH = 60
OPTIONS = (
    "split.subset.size=301",
    "trainer.epochs=3",
    "trainer.accumulate_grad_batches={0: 2}",
    "trainer.strategy=ddp",
)
OPTIONS += ("data.eval_batch_size=7", "scheduler={name: cosine_restarts, interval: step, first_cycle: 4}")
SGD = "optimizer={name: SGD, lr: 0.001, options: {momentum: 0.9}}"
ADAM = "optimizer={name: Adam, lr: 0.001}"
# Ranks add up gradients in another order. Adam divides by them, and some are nothing but rounding errors (a bias before
# a softmax): where gradients differ by d, its steps differ by up to lr · d / eps = 1e5 d. In double precision, with d
# about 1e-15 and nine steps, that is 1e-9; in single precision eps (1e-8) is no larger than d, and nothing is left of
# the sign of such gradients.
CASES = [
    pytest.param("64-true", SGD, (1, 2, 3, 4, 5), 1e-12, id="double, SGD"),
    pytest.param("32-true", SGD, (1, 2, 4), 1e-6, id="single, SGD"),
    pytest.param("64-true", ADAM, (1, 3), 1e-8, id="double, Adam"),
]


def trained(tiny: Tiny, runs: Path, ranks: int, *options: str) -> RunDirectory:
    """A run of so many processes."""
    each = [f"trainer.devices={ranks}", f"data.batch_size={GLOBAL_BATCH // ranks}"]
    arguments = tiny.overrides(runs, *BARE, *OPTIONS, *options, *each)
    done = dglcell("train", tiny.file, *arguments, cwd=runs.parent)
    assert done.returncode == 0, done.stderr
    return RunDirectory(runs / "tiny" / "seed-0")


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "optimizer", "sizes", "tolerance"), CASES)
def test_several_processes_are_one(
    tiny: Tiny, tmp_path: Path, precision: str, optimizer: str, sizes: tuple[int, ...], tolerance: float
) -> None:
    options, rounds = (f"trainer.precision={precision}", optimizer), precision == "32-true"
    runs = {ranks: trained(tiny, tmp_path / str(ranks), ranks, *options) for ranks in sizes}
    one, whole = history(runs[1]), read_checkpoint(runs[1].last)
    assert [row["step"] for row in one] == [3, 6, 9]
    for ranks in sizes[1:]:
        state = read_checkpoint(runs[ranks].last)
        for name, weight in whole["state_dict"].items():
            torch.testing.assert_close(state["state_dict"][name], weight, rtol=tolerance, atol=tolerance, msg=name)
        for row, expected in zip(history(runs[ranks]), one, strict=True):
            for name, value in expected.items():
                # Metrics are of predictions in single precision. So is the loss in such runs: weights that differ by
                # 3e-7 after nine steps give one that differs by 3e-6.
                near = 1e-5 if "loss" not in name else 5e-6 if rounds else tolerance
                assert row[name] == pytest.approx(value, rel=near, abs=near), name
                if name.endswith("/n"):
                    assert row[name] == value == {"train": 241, "validation": 30}[name.split("/")[0]]
