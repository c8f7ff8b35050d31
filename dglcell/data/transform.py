"""Label normalisation with statistics of the training part only."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dglcell.errors import DataError


class Normaliser(nn.Module):
    """z-scores per phenotype; statistics are buffers and travel with checkpoints.

    Attributes:
        mean: [T] training mean.
        sd: [T] training standard deviation (population).
        logits: whether a model predicts logits of labels from 0 to 1, which then stay as they are.
    """

    mean: Tensor
    sd: Tensor

    def __init__(self, mean: Tensor, sd: Tensor, *, logits: bool = False) -> None:
        super().__init__()
        self.logits = logits
        self.register_buffer("mean", mean.float())
        self.register_buffer("sd", sd.float())

    @classmethod
    def fit(cls, labels_ST: Tensor, phenotypes: tuple[str, ...], *, logits: bool = False) -> Normaliser:
        """Statistics of the training labels, NaN left out; mean 0 and deviation 1 for logits.

        Raises:
            DataError: a phenotype has no training label, or a single value.
        """
        means, sds = [], []
        for name, column in zip(phenotypes, labels_ST.double().unbind(1), strict=True):
            values = column[~column.isnan()]
            if len(values) == 0:
                raise DataError(f"phenotype '{name}' has no label in the training part", do="choose another split")
            if (values == values[0]).all():
                raise DataError(
                    f"phenotype '{name}' is constant in the training part",
                    got=float(values[0]),
                    do="leave it out of `data.phenotypes`, or choose another split",
                )
            means.append(values.mean())
            sds.append(values.std(unbiased=False))
        mean, sd = torch.stack(means), torch.stack(sds)
        return cls(torch.zeros_like(mean), torch.ones_like(sd), logits=True) if logits else cls(mean, sd)

    def normalise(self, labels: Tensor) -> Tensor:
        """Original → normalised units; [..., T]."""
        return (labels - self.mean) / self.sd

    def expect(self, outputs: Tensor) -> Tensor:
        """What a model says → normalised units; [..., T]."""
        return outputs.sigmoid() if self.logits else outputs

    def restore(self, outputs: Tensor) -> Tensor:
        """What a model says → original units; [..., T]."""
        return self.expect(outputs) * self.sd + self.mean
