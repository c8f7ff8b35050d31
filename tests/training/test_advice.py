"""What is said of schedules that do not fit their strains."""

from __future__ import annotations

import pytest

from dglcell.training.advice import still_falling, warn_of_falling_loss, warn_of_few_steps, warn_of_warm_up


def test_a_warm_up_that_takes_most_of_the_training_is_said(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_warm_up(15, 30)
    assert not caplog.messages
    warn_of_warm_up(100, 30)
    (said,) = caplog.messages
    assert said.startswith("the training has 30 steps, and the learning rate rises during the first 100 of them")


@pytest.mark.parametrize(("batches", "batch_size", "steps"), [(12, 128, 120), (1, 8, 100), (3, 4096, 600)])
def test_enough_steps_or_small_batches_are_no_matter(
    caplog: pytest.LogCaptureFixture, batches: int, batch_size: int, steps: int
) -> None:
    warn_of_few_steps(batches, batch_size, steps)
    assert not caplog.messages


def test_epochs_of_a_handful_of_steps_are_said(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_few_steps(1, 128, 30)
    assert caplog.messages == [
        "an epoch has 1 step, and the training 30 steps: lower `data.batch_size`, which is 128, or raise "
        "`trainer.epochs`"
    ]


def test_a_loss_that_still_falls_is_said(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_falling_loss([{"validation/loss": 1 / (n + 1), "step": 60 * (n + 1)} for n in range(10)])
    assert caplog.messages == [
        "the validation loss was still falling at the end, and is 0.1: train longer, e.g. `trainer.epochs=30` in "
        "another run directory"
    ]


def test_without_a_validation_part_the_training_loss_counts(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_falling_loss([{"train/loss": 5.0 - n, "step": n + 1} for n in range(5)])
    assert "the train loss was still falling" in caplog.text
    assert "`trainer.epochs=500`" in caplog.text  # of a step each


@pytest.mark.parametrize(
    "losses", [[1.0, 0.5, 0.3, 0.3, 0.3], [1.0, 0.2, 0.3, 0.4, 0.3], [3.0, 1.0], [-1.0, -1.1, -1.2, -1.2, -1.21]]
)
def test_a_loss_that_has_settled_is_no_matter(caplog: pytest.LogCaptureFixture, losses: list[float]) -> None:
    warn_of_falling_loss([{"validation/loss": loss} for loss in losses])
    assert not caplog.messages


@pytest.mark.parametrize(
    ("losses", "falls"),
    [([1.0, 0.5], True), ([1.0, 0.5, 0.6], False), ([1.0], False), ([], False), ([1.0, 0.5, 0.5, 0.499], False)],
)
def test_a_loss_falls_where_the_last_epochs_lowered_it(losses: list[float], falls: bool) -> None:
    assert still_falling(losses) is falls
