"""The record of a run: one JSON line per epoch, whatever else is logged."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any


class EpochLog:
    """Appends epochs to ``metrics.jsonl`` and says them in one line.

    Args:
        path: of the file.
        epochs: of the whole training, for the line.
    """

    def __init__(self, path: Path, epochs: int) -> None:
        self.path, self.epochs = path, epochs

    def rewind(self, epoch: int) -> None:
        """Forget the epochs from ``epoch`` on: a resumed run writes them again."""
        if not self.path.exists():
            return
        kept = [row for row in self.read() if row["epoch"] < epoch]
        partial = self.path.with_suffix(".partial")
        partial.write_text("".join(json.dumps(row) + "\n" for row in kept))
        os.replace(partial, self.path)

    def read(self) -> list[dict[str, Any]]:
        """All epochs so far; a line torn by a crash is left out."""
        if not self.path.exists():
            return []
        rows = []
        for line in self.path.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return rows

    def write(self, epoch: int, step: int, figures: dict[str, float]) -> str:
        """Append an epoch.

        Returns:
            the line to print.
        """
        best = min(
            (r["validation/loss"] for r in self.read() if r.get("validation/loss") is not None), default=math.inf
        )
        row = {"epoch": epoch, "step": step, **{k: v if math.isfinite(v) else None for k, v in figures.items()}}
        with open(self.path, "a") as file:
            file.write(json.dumps(row) + "\n")
        loss = figures.get("validation/loss", math.nan)
        metric = f"r {figures.get('validation/pearson', math.nan):.4f}"
        if "validation/average_precision" in figures:
            metric = f"AP {figures['validation/average_precision']:.4f}"
        return (
            f"epoch {epoch + 1:>4}/{self.epochs}  train loss {figures['train/loss']:.4f}  "
            f"validation loss {loss:.4f}  {metric}  "
            f"{figures['seconds']:.1f} s{'  *' if loss < best else ''}"
        )
