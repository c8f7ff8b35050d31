"""Normalise labels with statistics of the training part only."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dglcell.errors import DataError, count


def _identity(values: Tensor) -> tuple[Tensor, Tensor]:
    return values.new_zeros(()), values.new_ones(())


STATISTICS: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "standard": lambda values: (values.mean(), values.std(unbiased=False)),
    "none": _identity,
    "logistic": _identity,
}
"""This maps each kind to a function that returns shift and scale of one phenotype's training labels, which are [n]
float64, at least two."""


class Normaliser(nn.Module):
    """Convert phenotypes to normalised units; statistics are buffers and travel with checkpoints.

    ========  ======================  =====================
    kind      shift                   scale
    ========  ======================  =====================
    standard  mean                    standard deviation
    none      0                       1
    logistic  0                       1
    ========  ======================  =====================

    Under ``logistic`` labels are 0 to 1 and models predict their logits.

    Args:
        kind: a key of ``STATISTICS``.
        shift: [T] in original units.
        scale: [T] in original units.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, kind: str, shift: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("shift", shift.float())
        self.register_buffer("scale", scale.float())

    @classmethod
    def fit(cls, labels_ST: Tensor, phenotypes: tuple[str, ...], kind: str = "standard") -> Normaliser:
        """Compute statistics of the training labels, with NaN left out.

        Raises:
            DataError: a phenotype has no training label, a single value, a spread that single precision cannot hold,
                or labels that do not fit ``kind``.
        """
        columns = zip(phenotypes, labels_ST.double().unbind(1), strict=True)
        shifts, scales = zip(
            *(_statistics(name, column[~column.isnan()], kind) for name, column in columns), strict=True
        )
        return cls(kind, torch.stack(shifts), torch.stack(scales))

    def normalise(self, labels: Tensor) -> Tensor:
        """Convert original to normalised units, [..., T]."""
        return (labels - self.shift) / self.scale

    def expect(self, outputs: Tensor) -> Tensor:
        """Convert what a model predicts to normalised units, [..., T]."""
        return outputs.sigmoid() if self.kind == "logistic" else outputs

    def restore(self, outputs: Tensor) -> Tensor:
        """Convert what a model predicts to original units, [..., T]."""
        return self.expect(outputs) * self.scale + self.shift


def _statistics(name: str, values: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """Return the shift and scale of one phenotype.

    Args:
        name: name of the phenotype.
        values: [n] float64, its training labels.
        kind: a key of ``STATISTICS``.
    """
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    _check_labels(name, len(values), low, high, kind)
    shift, scale = STATISTICS[kind](values)
    _check_spread(name, float(scale), low, high)
    return shift, scale


def _check_labels(name: str, number: int, low: float, high: float, kind: str) -> None:
    """Refuse training labels that cannot be normalised; the arguments give their number and their range."""
    if number == 0:
        raise DataError(f"phenotype '{name}' has no label in the training part", do="choose another split")
    if low == high:
        raise DataError(
            f"phenotype '{name}' is constant in the training part",
            got=f"{low:g} in {count(number, 'strain')}",
            do=(
                "leave it out of `data.phenotypes`, or choose another split"
                if number > 1
                else "add strains, or let more of them train with `split.fractions`"
            ),
        )
    if kind == "logistic" and not 0 <= low < high <= 1:
        raise DataError(
            f"`data.normalise: logistic`: labels of phenotype '{name}' are no probabilities",
            got=f"{low:.4g} … {high:.4g}",
            expected="0 … 1",
            do="leave it out of `data.phenotypes`, or set `data.normalise: standard`",
        )


def _check_spread(name: str, scale: float, low: float, high: float) -> None:
    """Refuse a scale that is not a number of single precision."""
    float32 = torch.finfo(torch.float32)
    if not float32.tiny <= scale <= float32.max:
        raise DataError(
            f"phenotype '{name}': the spread of its training labels does not fit into single precision",
            got=f"{scale:.4g}, labels {low:.4g} … {high:.4g}",
            expected=f"{float32.tiny:.4g} … {float32.max:.4g}",
            do="give the phenotype in another unit",
        )
