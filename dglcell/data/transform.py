"""Normalise labels with statistics of the training part only."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dglcell.errors import DataError, count


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
        kind: one of ``NORMALISATIONS``.
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
        shifts, scales = [], []
        for name, column in zip(phenotypes, labels_ST.double().unbind(1), strict=True):
            values = column[~column.isnan()]
            _check_labels(name, values, kind)
            standard = kind == "standard"
            shifts.append(values.mean() if standard else values.new_zeros(()))
            scales.append(values.std(unbiased=False) if standard else values.new_ones(()))
            _check_spread(name, values, float(scales[-1]))
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


def _check_labels(name: str, values: Tensor, kind: str) -> None:
    """Refuse training labels that cannot be normalised."""
    if len(values) == 0:
        raise DataError(f"phenotype '{name}' has no label in the training part", do="choose another split")
    low, high = values.min().item(), values.max().item()
    if low == high:
        raise DataError(
            f"phenotype '{name}' is constant in the training part",
            got=f"{low:g} in {count(len(values), 'strain')}",
            do=(
                "leave it out of `data.phenotypes`, or choose another split"
                if len(values) > 1
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


def _check_spread(name: str, values: Tensor, scale: float) -> None:
    """Refuse a scale that is not a number of single precision."""
    float32 = torch.finfo(torch.float32)
    if not float32.tiny <= scale <= float32.max:
        raise DataError(
            f"phenotype '{name}': the spread of its training labels does not fit into single precision",
            got=f"{scale:.4g}, labels {values.min().item():.4g} … {values.max().item():.4g}",
            expected=f"{float32.tiny:.4g} … {float32.max:.4g}",
            do="give the phenotype in another unit",
        )
