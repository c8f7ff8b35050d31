"""Log-cosh loss."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor


def log_cosh(error: Tensor) -> Tensor:
    """``log cosh(error)``, element by element, as ``|e| + softplus(−2|e|) − log 2``.

    The direct form overflows in float32 beyond an error of about 89.
    """
    magnitude = error.abs()
    return magnitude + F.softplus(-2 * magnitude) - math.log(2)
