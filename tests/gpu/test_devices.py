"""What looks for mistakes finds them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.gpu.devices import ExplicitDevices


@pytest.mark.parametrize("maker", [lambda: torch.arange(3), lambda: torch.tensor([1]), lambda: torch.zeros(2, 2)])
def test_a_tensor_on_no_device_in_particular_is_found(maker: Callable[[], torch.Tensor]) -> None:
    with pytest.raises(AssertionError, match="without a device"), ExplicitDevices():
        maker()


def test_tensors_made_like_others_are_not() -> None:
    x = torch.ones(3)
    with ExplicitDevices():
        torch.zeros_like(x) + x.new_ones(3) + torch.arange(3, device=x.device)
