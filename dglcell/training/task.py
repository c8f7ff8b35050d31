"""What is optimised and what is measured, for Lightning."""

from __future__ import annotations

import math
import time
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from dglcell.data.dataset import StrainBatch
from dglcell.data.kinds import CLASSIFICATION
from dglcell.data.transform import Normaliser
from dglcell.errors import DglcellError
from dglcell.losses.loss import Loss, LossTerms
from dglcell.models.hetero_cell import HeteroCell
from dglcell.models.model import Prediction, StrainModel
from dglcell.training.gather import gather_rows
from dglcell.training.metrics import regression_metrics
from dglcell.training.optimizers import OptimizerConfig, SchedulerConfig, make_optimizer, make_scheduler
from dglcell.training.pair_sums import EpochSums, metrics_of, pair_sums, sum_rows
from dglcell.training.pictures import EpochPictures
from dglcell.training.ranking import classification_metrics
from dglcell.training.record import EpochLog
from dglcell.training.spread import embedding_figures, embedding_sums


class StrainTask(pl.LightningModule):
    """Learning phenotypes from genotypes.

    Labels are normalised by the training part's statistics; the loss is taken in normalised units, metrics in both.
    A step only enqueues work on the device: predictions and losses, or sums of them, stay there until the epoch ends.

    Args:
        model: genotypes → predictions in normalised units.
        normaliser: label statistics of the training part.
        phenotypes: T names.
        kinds: T kinds of labels; see ``StrainDataset.kinds``.
        loss: of predictions in normalised units; its buffers travel with checkpoints.
        optimizer, scheduler: validated.
        epochs: of the whole training.
        steps: optimiser steps of the whole training.
        record: where every epoch's figures go.
        about: what checkpoints say of themselves, plain containers.
        pictures: draws the validation part while the model learns; nothing where None.
        train_ranking: whether to keep an epoch's predictions of the training part, for the metrics that compare ranks.
    """

    def __init__(
        self,
        model: StrainModel,
        normaliser: Normaliser,
        phenotypes: tuple[str, ...],
        *,
        kinds: tuple[str, ...],
        loss: Loss,
        optimizer: OptimizerConfig,
        scheduler: SchedulerConfig,
        epochs: int,
        steps: int,
        record: EpochLog,
        about: dict[str, Any],
        pictures: EpochPictures | None = None,
        train_ranking: bool = True,
    ) -> None:
        super().__init__()
        self.model, self.normaliser, self.phenotypes = model, normaliser, phenotypes
        self.kinds, self.loss = kinds, loss
        self.optimizer_config, self.scheduler_config = optimizer, scheduler
        self.epochs, self.steps, self.record, self.about = epochs, steps, record, about
        self.pictures = pictures
        self._seen: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {"train": [], "validation": []}
        self._sums = None if train_ranking else EpochSums()
        self._terms: dict[str, list[str]] = {}
        self._embedding_sums: list[Tensor] = []
        self._embeddings: list[Tensor] = []
        self._figures: dict[str, float] = {}
        self._started = 0.0
        self._learning_rate = math.nan
        # All ranks hold the same graph: DistributedDataParallel need not send it around before every step.
        self._ddp_params_and_buffers_to_ignore = [name for name, _ in self.named_buffers()]

    def setup(self, stage: str) -> None:
        """Take what the first rank chose for `auto`: ranks that chose by themselves, or by a file that an earlier run
        left, could compute differently.
        """
        if isinstance(self.model, HeteroCell) and self.model.config.is_calibrated():
            choices = self.trainer.strategy.broadcast(self.model.choices)
            if choices is not None:
                self.model.choose(choices)

    def training_step(self, batch: StrainBatch, batch_idx: int) -> Tensor:
        """Loss of one batch, in normalised units."""
        return self._step(batch, "train")

    def validation_step(self, batch: StrainBatch, batch_idx: int) -> None:
        """Remember predictions and loss of one batch, and how large and different its embeddings are."""
        self._step(batch, "validation")

    def _remember(self, embedding_BD: Tensor) -> None:
        """Sums of the validation strains' embeddings; they themselves only where they are drawn."""
        self._embedding_sums.append(embedding_sums(embedding_BD))
        if self._draws():
            self._embeddings.append(embedding_BD.float())

    def _draws(self) -> bool:
        return self.pictures is not None and self.pictures.due(self.current_epoch)

    def _step(self, batch: StrainBatch, part: str) -> Tensor:
        prediction: Prediction = self.model(batch.genotypes)
        target_BT = self.normaliser.normalise(batch.labels)
        loss: LossTerms = self.loss(prediction, target_BT, self.current_epoch)
        present = (~batch.labels.isnan()).sum()
        # All terms are those of the batches of all ranks; each rank counts them as often as it has labels.
        summed = torch.stack([loss.total.detach(), *loss.terms.values(), torch.ones_like(loss.total)]) * present
        if part == "validation" and prediction.embedding is not None:
            self._remember(prediction.embedding)
        self._terms[part] = list(loss.terms)
        outputs_BT = prediction.phenotypes.detach().float()
        if part == "train" and self._sums is not None:
            self._sums.add(self._pair_sums(outputs_BT, batch.labels, target_BT), summed.double())
        else:
            self._seen[part].append((outputs_BT, batch.labels, summed.double()[None]))
        return loss.total

    def _pair_sums(self, outputs_BT: Tensor, labels_BT: Tensor, target_BT: Tensor) -> Tensor:
        """[2, T, 12] sums in original and in normalised units."""
        original = pair_sums(self.normaliser.restore(outputs_BT), labels_BT)
        return torch.stack([original, pair_sums(self.normaliser.expect(outputs_BT), target_BT)])

    def on_train_epoch_start(self) -> None:
        """Start the clock."""
        self._started = time.perf_counter()
        self._seen["train"].clear()
        if self._sums is not None:
            self._sums.clear()

    def on_validation_epoch_start(self) -> None:
        """Forget what a sanity check may have left."""
        for seen in (self._seen["validation"], self._embedding_sums, self._embeddings):
            seen.clear()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Remember the learning rate of this step: schedules move on before the epoch is recorded."""
        self._learning_rate = float(optimizer.param_groups[0]["lr"])

    def on_validation_epoch_end(self) -> None:
        """Validation figures, exact over all ranks; and a picture where one is due."""
        restored_ST, labels_ST, self._figures = self._measure("validation")
        if self._embedding_sums:
            figures = embedding_figures(self._embedding_sums)
            self._figures |= {f"validation/{name}": value for name, value in figures.items()}
        if self._draws():
            self._draw(restored_ST, labels_ST)

    def _draw(self, restored_ST: Tensor, labels_ST: Tensor) -> None:
        """The picture of the epoch; every rank gives its embeddings, the first one draws."""
        embedding_SD = gather_rows(torch.cat(self._embeddings)) if self._embeddings else None
        if self.trainer.is_global_zero:
            assert self.pictures is not None
            self.pictures.draw(self.current_epoch, self.phenotypes, restored_ST, labels_ST, embedding_SD)

    def on_train_epoch_end(self) -> None:
        """Figures of the epoch, written to its record and logged at once, so that they are one row of any logger."""
        figures = self._measure("train")[2] if self._sums is None else self._measure_sums(self._sums)
        seconds = time.perf_counter() - self._started
        figures |= {"learning_rate": self._learning_rate, "seconds": seconds, **self._figures}
        self.log_dict(figures)
        if self.trainer.is_global_zero:
            self.print(self.record.write(self.current_epoch, self.global_step, figures))
        for scheduler in self.trainer.lr_scheduler_configs:
            if isinstance(scheduler.scheduler, ReduceLROnPlateau):
                scheduler.scheduler.step(figures["validation/loss"])

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """Advance a schedule, but for plateaus.

        Lightning would step a plateau only after the epoch's checkpoint is written, and a continued run would have
        missed that step; so it is done in ``on_train_epoch_end``.
        """
        if not isinstance(scheduler, ReduceLROnPlateau):
            scheduler.step()

    def _measure(self, part: str) -> tuple[Tensor, Tensor, dict[str, float]]:
        """Predictions and labels [S, T] of all ranks, in original units, and the figures of the epoch."""
        outputs_ST, labels_ST, losses = (gather_rows(rows) for rows in self._seen_rows(part))
        self._seen[part].clear()
        targets_ST = self.normaliser.normalise(labels_ST)
        expected_ST, restored_ST = self.normaliser.expect(outputs_ST), self.normaliser.restore(outputs_ST)
        scores = []
        for t, kind in enumerate(self.kinds):
            predicted, measured = restored_ST[:, t].cpu(), labels_ST[:, t].cpu()
            original = regression_metrics(predicted, measured)
            if kind == CLASSIFICATION:
                original |= classification_metrics(predicted, measured)
            scores.append((original, regression_metrics(expected_ST[:, t].cpu(), targets_ST[:, t].cpu())))
        return restored_ST, labels_ST, self._name_figures(part, losses, scores)

    def _measure_sums(self, sums: EpochSums) -> dict[str, float]:
        """The figures of the training part, from the sums of all ranks."""
        pairs, losses = (gather_rows(rows) for rows in sums.rows())
        sums.clear()
        original, normalised = sum_rows(pairs).cpu()
        scores = [(metrics_of(o), metrics_of(n)) for o, n in zip(original, normalised, strict=True)]
        return self._name_figures("train", losses, scores)

    def _name_figures(
        self, part: str, losses: Tensor, scores: list[tuple[dict[str, float], dict[str, float]]]
    ) -> dict[str, float]:
        """The figures of an epoch by their names.

        Args:
            part: of the split.
            losses: a row per batch or rank; the last column holds the numbers of labels.
            scores: of each phenotype in original and in normalised units.
        """
        *totals, present = losses.sum(0).tolist()
        names = [f"{part}/loss", *(f"{part}/loss/{term}" for term in self._terms[part])]
        figures = {name: total / max(present, 1.0) for name, total in zip(names, totals, strict=True)}
        means: dict[str, list[float]] = {}
        for name, (original, normalised) in zip(self.phenotypes, scores, strict=True):
            figures |= {f"{part}/{name}/{metric}": value for metric, value in original.items()}
            figures |= {f"{part}/{name}/normalised/{m}": normalised[m] for m in ("mse", "rmse", "mae")}
            for metric in [m for m in ("pearson", "average_precision") if m in original]:
                means.setdefault(metric, []).append(original[metric])
        return figures | {f"{part}/{metric}": _mean_of_finite(values) for metric, values in means.items()}

    def configure_optimizers(self) -> Any:
        """Optimiser and schedule."""
        optimizer = make_optimizer(self.optimizer_config, self.model.parameters())
        scheduler = make_scheduler(self.scheduler_config, optimizer, epochs=self.epochs, steps=self.steps)
        return optimizer if scheduler is None else {"optimizer": optimizer, "lr_scheduler": scheduler}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Say what this is; keep the generators' states, so that a resumed run draws the same dropout masks.

        Raises:
            DglcellError: a weight is not finite: nothing could be continued from there.
        """
        if not torch.stack([weight.isfinite().all() for weight in self.model.parameters()]).all():
            raise DglcellError(
                f"weights are not finite after step {self.global_step}, in epoch {self.current_epoch + 1}",
                do="lower `optimizer.lr`, or set `trainer.clip`; the checkpoints of earlier epochs are kept",
            )
        checkpoint["dglcell"] = self.about
        checkpoint["unfinished"] = self._unfinished()
        checkpoint["rng"] = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_available():
            checkpoint["rng"]["cuda"] = torch.cuda.get_rng_state_all()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Put the generators back where they were."""
        torch.set_rng_state(checkpoint["rng"]["cpu"])
        if "cuda" in checkpoint["rng"] and torch.cuda.device_count() == len(checkpoint["rng"]["cuda"]):
            torch.cuda.set_rng_state_all(checkpoint["rng"]["cuda"])
        unfinished = checkpoint.get("unfinished")
        if unfinished is not None:
            self._started = time.perf_counter() - unfinished["seconds"]
            # Once over all ranks: what each of them had seen is gathered in it. It was read on the host.
            if self.trainer.is_global_zero:
                self._take_up([tensor.to(self.trainer.strategy.root_device) for tensor in unfinished["seen"]])

    def _take_up(self, seen: list[Tensor]) -> None:
        """Go on from what an unfinished epoch had seen."""
        if self._sums is None:
            outputs, labels, losses = seen
            self._seen["train"].append((outputs, labels, losses))
        else:
            pairs, losses = seen
            self._sums.add_rows(pairs, losses)

    def _unfinished(self) -> dict[str, Any] | None:
        """What the epoch's figures need of its steps so far, of all ranks; None between epochs."""
        if not (self._seen["train"] or self._sums):
            return None
        rows = self._sums.rows() if self._sums else self._seen_rows("train")
        seen = [gather_rows(one) for one in rows]
        return {"seen": seen, "seconds": time.perf_counter() - self._started}

    def _seen_rows(self, part: str) -> tuple[Tensor, Tensor, Tensor]:
        """Predictions and labels [S, T] of this rank, and its losses, a row per batch."""
        predictions, labels, losses = zip(*self._seen[part], strict=True)
        return torch.cat(predictions), torch.cat(labels), torch.cat(losses)


def _mean_of_finite(values: list[float]) -> float:
    """Their mean; zero if none is finite."""
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else 0.0
