"""Strains that are compared with each other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dglcell.losses.gather import gather_rows, largest_over_ranks, world_size
from dglcell.models.prediction import Prediction


@dataclass(frozen=True)
class Rows:
    """N strains: what is predicted, measured, and where they lie.

    Attributes:
        prediction: [N, T].
        target: [N, T], NaN where a label is missing or does not take part.
        embedding: [N, D]; D is 0 where embeddings are not compared.
    """

    prediction: Tensor
    target: Tensor
    embedding: Tensor

    @classmethod
    def of(cls, prediction: Prediction, target_BT: Tensor, *, embeds: bool) -> Rows:
        """A batch, in the precision of its labels or better.

        Args:
            prediction: of B strains.
            target_BT: NaN where missing.
            embeds: whether embeddings are compared; a prediction without them is then a mistake.
        """
        dtype = torch.promote_types(prediction.phenotypes.dtype, target_BT.dtype)
        embedding = target_BT.new_empty(len(target_BT), 0) if not embeds else prediction.embedding
        assert embedding is not None, "refused by the configuration: `LossConfig.needs`"
        return cls(prediction.phenotypes.to(dtype), target_BT.to(dtype), embedding.to(dtype))

    def detach(self) -> Rows:
        """The same without gradient."""
        return Rows(self.prediction.detach(), self.target.detach(), self.embedding.detach())

    def gather(self, capacity: int | None) -> Rows:
        """The rows of all ranks, with gradient; see ``dglcell.losses.gather``.

        Args:
            capacity: as many rows as any rank can have; shorter batches are filled up with rows without labels. Where
                None, the ranks ask each other, for which the host waits.
        """
        if world_size() == 1:
            return self
        if capacity is None:
            capacity = largest_over_ranks(len(self.target), self.target.device)
        assert len(self.target) <= capacity, f"{len(self.target)} strains, where `Loss.batch_size` says {capacity}"
        lacking = (0, 0, 0, capacity - len(self.target))
        filled = [F.pad(self.prediction, lacking), F.pad(self.target, lacking, value=torch.nan)]
        filled.append(F.pad(self.embedding, lacking))
        widths = [x.shape[1] for x in filled]
        return Rows(*gather_rows(torch.cat(filled, dim=1)).split(widths, dim=1))

    def __add__(self, other: Rows) -> Rows:
        return Rows(
            torch.cat([self.prediction, other.prediction]),
            torch.cat([self.target, other.target]),
            torch.cat([self.embedding, other.embedding]),
        )

    @property
    def present(self) -> Tensor:
        """[N, T] which labels take part."""
        return ~self.target.isnan()
