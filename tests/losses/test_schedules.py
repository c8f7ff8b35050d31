"""Temperatures and shares of the buffer by epoch."""

from __future__ import annotations

import math

import pytest

from dglcell.losses.contrast import buffer_share, temperature_at


def test_temperatures_fall_exponentially_by_half_a_wave_or_not_at_all() -> None:
    exponential = [temperature_at(e, 4, 1.0, 0.1, "exponential") for e in range(5)]
    assert exponential == pytest.approx([1.0, 10**-0.25, 10**-0.5, 10**-0.75, 0.1])
    cosine = [temperature_at(e, 4, 1.0, 0.1, "cosine") for e in range(5)]
    assert cosine == pytest.approx([1.0, 0.55 + 0.45 * math.sqrt(0.5), 0.55, 0.55 - 0.45 * math.sqrt(0.5), 0.1])
    assert {temperature_at(e, 4, 0.3, 0.1, "none") for e in range(5)} == {0.3}
    assert temperature_at(9, 4, 1.0, 0.1, "exponential") == pytest.approx(0.1)


def test_the_share_of_the_buffer_rises_in_a_line_then_a_sigmoid_then_stays() -> None:
    assert [buffer_share(e, 100, None, None) for e in (0, 5, 9)] == pytest.approx([0.1, 0.2, 0.28])
    # Half way between epoch 10 and epoch 50.
    assert buffer_share(30, 100, None, None) == pytest.approx(0.6)
    assert buffer_share(10, 100, None, None) == pytest.approx(0.3 + 0.6 / (1 + math.exp(5)))
    assert [buffer_share(e, 100, None, None) for e in (50, 99, 1000)] == [0.9] * 3


def test_its_epochs_can_be_set() -> None:
    assert buffer_share(3, 1000, 4, 8) == pytest.approx(0.25)
    assert buffer_share(6, 1000, 4, 8) == pytest.approx(0.6)
    assert buffer_share(8, 1000, 4, 8) == 0.9
    assert buffer_share(0, 1000, 0, 0) == 0.9
    # A warm-up beyond half of all epochs ends in the last value.
    assert buffer_share(79, 100, 80, None) == pytest.approx(0.1 + 0.2 * 79 / 80)
    assert buffer_share(80, 100, 80, None) == 0.9


@pytest.mark.parametrize("epochs", [1, 2, 7, 500])
def test_it_never_falls_and_never_reaches_one(epochs: int) -> None:
    shares = [buffer_share(e, epochs, None, None) for e in range(epochs + 2)]
    assert shares == sorted(shares)
    assert shares[0] >= 0.1
    assert shares[-1] == 0.9
