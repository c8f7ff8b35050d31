"""What is said of losses that still fall."""

from __future__ import annotations

import pytest

from dglcell.training.fit import warn_of_falling_loss


def test_a_loss_that_still_falls_is_said(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_falling_loss([{"validation/loss": 1 / (n + 1), "step": 60 * (n + 1)} for n in range(10)])
    assert caplog.messages == [
        "the validation loss was still falling at the end, and is 0.1: train longer, e.g. `trainer.epochs=30` in "
        "another run directory"
    ]


def test_without_a_validation_part_the_training_loss_counts(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_falling_loss([{"train/loss": 5.0 - n, "step": n + 1} for n in range(5)])
    assert "the train loss was still falling" in caplog.text


@pytest.mark.parametrize(
    "losses", [[1.0, 0.5, 0.3, 0.3, 0.3], [1.0, 0.2, 0.3, 0.4, 0.3], [3.0, 1.0], [-1.0, -1.1, -1.2, -1.2, -1.21]]
)
def test_a_loss_that_has_settled_is_no_matter(caplog: pytest.LogCaptureFixture, losses: list[float]) -> None:
    warn_of_falling_loss([{"validation/loss": loss} for loss in losses])
    assert not caplog.messages
