"""Where the tests of this folder run: on a GPU, and on a CPU along the paths that a GPU takes."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from dglcell.kernels import spmm
from dglcell.perturbation import curves, execution, perturb, rules, states

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

MAKERS = ("arange", "empty", "eye", "full", "linspace", "ones", "rand", "randn", "randperm", "tensor", "zeros")


class ExplicitDevices(TorchFunctionMode):
    """Refuse tensors that are made without saying where: on a GPU they would be on the host. What torch makes itself
    is its own business."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        ours = not sys._getframe(1).f_globals.get("__name__", "").startswith("torch.")
        made = getattr(func, "__name__", "") in MAKERS and func is getattr(torch, func.__name__)
        if ours and made and "device" not in kwargs:
            raise AssertionError(f"torch.{func.__name__} without a device")
        return func(*args, **kwargs)


def as_on_a_gpu(patch: pytest.MonkeyPatch) -> None:
    """Let a CPU take a GPU's route.

    Nothing is listed, relations are computed together in blocks as large as on a GPU, layers may be compiled in
    evaluation, too, and ``auto`` takes torch's sparse product, as on a GPU without Triton.
    Nothing else in the package asks for the device's type but the choice of a strategy, which these tests name.
    """
    patch.setitem(states.ROWS_IN_BLOCK, "cpu", states.ROWS_IN_BLOCK["cuda"])
    patch.setattr(perturb, "LISTING_DEVICES", ())
    patch.setattr(execution, "UNCOMPILED_EVALUATION", ())
    patch.setattr(curves, "LERP_DEVICES", ())
    patch.setitem(rules.LEAST_ROWS, "cpu", 2)
    patch.setattr(spmm, "default_kernel", lambda device_type: "csr")
