"""The progress bar, which counts epochs as everything else that is printed does."""

from __future__ import annotations

from pytorch_lightning.callbacks import RichProgressBar


class EpochBar(RichProgressBar):
    """Lightning's bar, with epochs from 1."""

    def _get_train_description(self, current_epoch: int) -> str:
        return f"epoch {current_epoch + 1:>4}/{self.trainer.max_epochs}"
