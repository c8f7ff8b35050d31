"""The latest strains of training, for terms that compare more of them than a batch has."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dglcell.losses.rows import Rows

COLUMNS = ("prediction", "target", "embedding")


class RowBuffer(nn.Module):
    """Keeps the last ``size`` labelled strains, oldest first, without gradient.

    Its rows are registered buffers: they follow the device and are saved with checkpoints. They are made when the
    first strains come, whose widths they take; until as many were seen, those in front have no labels. Ranks that add
    the same rows keep the same.

    Args:
        size: number of strains.

    Attributes:
        seen: [] int64, labelled strains added so far.
    """

    seen: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        for column in COLUMNS:
            self.register_buffer(column, None)

    def newest(self, count: Tensor | None, like: Rows) -> Rows:
        """All that are kept, of which only the last ``count`` ([]; all where None) have labels.

        Args:
            count: on the device.
            like: strains of the same widths; before any was added, none of them is given back.
        """
        rows = self._rows()
        if rows is None:
            return Rows(like.prediction[:0], like.target[:0], like.embedding[:0])
        if count is None:
            return rows
        age_N1 = torch.arange(self.size - 1, -1, -1, device=count.device).unsqueeze(1)
        return Rows(rows.prediction, rows.target.masked_fill(age_N1 >= count, torch.nan), rows.embedding)

    @torch.no_grad()
    def add(self, rows: Rows) -> None:
        """Put strains with at least one label in, in place of the oldest."""
        rows = rows.detach()
        self.seen += rows.present.any(1).sum()
        if self.size == 0:
            return
        if self._rows() is None:
            self._allocate(rows.prediction, rows.target, rows.embedding)
        together = self.newest(None, like=rows) + rows
        # Stable: those without labels first, all others by age.
        order = together.present.any(1).to(torch.uint8).sort(stable=True).indices[-self.size :]
        for column in COLUMNS:
            getattr(self, column).copy_(getattr(together, column)[order])

    def _rows(self) -> Rows | None:
        kept = [getattr(self, column) for column in COLUMNS]
        return None if kept[0] is None else Rows(*kept)

    def _allocate(self, *examples: Tensor) -> None:
        for column, example in zip(COLUMNS, examples, strict=True):
            fill = torch.nan if column == "target" else 0.0
            self.register_buffer(column, example.new_full((self.size, *example.shape[1:]), fill))

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        if prefix + COLUMNS[0] in state_dict:
            self._allocate(*(state_dict[prefix + column].to(self.seen.device) for column in COLUMNS))
        super()._load_from_state_dict(state_dict, prefix, *args)
