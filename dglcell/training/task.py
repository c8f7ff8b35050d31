"""What is optimised and what is measured, for Lightning."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from dglcell.data.strains import Strains
from dglcell.data.table import CLASSIFICATION
from dglcell.data.transform import Normaliser
from dglcell.errors import DglcellError
from dglcell.losses.loss import Loss, LossTerms, all_rows_here
from dglcell.metrics import CONSTANT, classification_metrics, regression_metrics
from dglcell.models.encoder import PerturbedModel
from dglcell.models.model import Prediction, StrainModel, joined
from dglcell.optimizers import OptimizerConfig, SchedulerConfig, make_optimizer, make_scheduler, parameter_groups
from dglcell.runs.directory import EpochLog
from dglcell.training.callbacks import EpochPictures
from dglcell.training.distributed import collect_rows
from dglcell.training.whole_step import WholeStep

# Metrics of predictions that are not kept: from sums that are added up over batches and ranks.


FIELDS = 12


def pair_sums(predicted_BT: Tensor, measured_BT: Tensor) -> Tensor:
    """[..., T, 12] sums over the strains of a batch, in float64 and on its device, which is not waited for.

    They are the number of measured strains, the means of predictions and measurements, the sums of squared deviations
    from them, the sum of the deviations' products, the sums of squared and of absolute errors, and the least and
    greatest prediction and measurement.

    Args:
        predicted_BT: [..., B, T] predictions.
        measured_BT: [..., B, T] measurements; NaN where missing, those strains are left out.
    """
    missing = measured_BT.isnan()
    # Predictions and measurements at once, as every operator is a launch on a GPU.
    both = torch.stack([predicted_BT.double(), measured_BT.double()])
    values, number = both.masked_fill(missing, 0.0), (~missing).sum(-2).double()
    means = values.sum(-2) / number.clamp(min=1)
    deviations, error = (values - means.unsqueeze(-2)).masked_fill(missing, 0.0), values[0] - values[1]
    sums = [number, *means, *deviations.square().sum(-2), (deviations[0] * deviations[1]).sum(-2)]
    sums += [error.square().sum(-2), error.abs().sum(-2)]
    infinite = both.new_full((*both.shape[:-2], 1, both.shape[-1]), torch.inf)
    low = torch.cat([both.masked_fill(missing, torch.inf), infinite], -2).amin(-2)
    high = torch.cat([both.masked_fill(missing, -torch.inf), -infinite], -2).amax(-2)
    return torch.stack([*sums, low[0], high[0], low[1], high[1]], -1)


def add_sums(one: Tensor, other: Tensor) -> Tensor:
    """[..., T, 12] sums over the strains of both (Chan, Golub & LeVeque 1983, *Algorithms for computing the sample
    variance*, eq. 2.1; for products as for squares).
    """
    number = one[..., 0] + other[..., 0]
    share = other[..., 0] / number.clamp(min=1)
    by_p, by_t = other[..., 1] - one[..., 1], other[..., 2] - one[..., 2]
    weight = one[..., 0] * share
    moved = torch.stack([by_p * share, by_t * share, by_p.square() * weight, by_t.square() * weight], -1)
    means, squares = one[..., 1:3] + moved[..., :2], one[..., 3:5] + other[..., 3:5] + moved[..., 2:]
    product = one[..., 5] + other[..., 5] + by_p * by_t * weight
    low = torch.minimum(one[..., 8::2], other[..., 8::2])
    high = torch.maximum(one[..., 9::2], other[..., 9::2])
    ends = torch.stack([low, high], -1).flatten(-2)
    return torch.cat([number[..., None], means, squares, product[..., None], one[..., 6:8] + other[..., 6:8], ends], -1)


def metrics_of(sums: Tensor) -> dict[str, float]:
    """The metrics of :func:`~dglcell.metrics.regression_metrics` but for ``spearman``, of sums [12]."""
    n, _, _, square_p, square_t, product, squares, sizes, low_p, high_p, low_t, high_t = sums.tolist()
    found = dict.fromkeys(("mse", "rmse", "mae", "pearson", "r2"), math.nan)
    if n == 0 or not math.isfinite(squares):
        return found | {"n": int(n)}
    found |= {"mse": squares / n, "rmse": math.sqrt(squares / n), "mae": sizes / n}
    constant_p, constant_t = _is_constant(low_p, high_p), _is_constant(low_t, high_t)
    if not constant_p and not constant_t:
        found["pearson"] = min(1.0, max(-1.0, product / math.sqrt(square_p) / math.sqrt(square_t)))
    if not constant_t:
        found["r2"] = 1.0 - squares / square_t
    return found | {"n": int(n)}


def _is_constant(low: float, high: float) -> bool:
    """See :func:`~dglcell.metrics.is_constant`."""
    return high - low <= CONSTANT * max(abs(low), abs(high))


class EpochSums:
    """What the metrics of an epoch need, as sums over all its steps so far; they stay on the device."""

    def __init__(self) -> None:
        self._sums: tuple[Tensor, Tensor] | None = None

    def __bool__(self) -> bool:
        return self._sums is not None

    def clear(self) -> None:
        """Forget everything."""
        self._sums = None

    def add(self, pairs: Tensor, losses: Tensor) -> None:
        """Take in sums of pairs [..., T, 12] and of losses [L]."""
        if self._sums is not None:
            pairs, losses = add_sums(self._sums[0], pairs), self._sums[1] + losses
        self._sums = pairs, losses

    def rows(self) -> tuple[Tensor, Tensor]:
        """All sums, as a single row each."""
        assert self._sums is not None
        return self._sums[0][None], self._sums[1][None]

    def add_rows(self, pairs: Tensor, losses: Tensor) -> None:
        """Take in such rows, of several ranks."""
        self.add(sum_rows(pairs), losses.sum(0))


def sum_rows(pairs: Tensor) -> Tensor:
    """Sums over the strains of all rows."""
    return reduce(add_sums, pairs.unbind(0))


# Size and spread of strains' embeddings, from sums that are added up batch by batch.


def embedding_sums(embedding_BD: Tensor) -> Tensor:
    """[2D + 4] sums over the strains of a batch, in float64 and on its device.

    They are Σz, Σz/‖z‖, Σ‖z‖, Σ‖z‖², the number of strains, and the number of those with ‖z‖ > 0. Sums of several
    batches, and of several ranks, add up.
    """
    z_BD = embedding_BD.detach().double()
    norm_B = z_BD.norm(dim=1)
    is_nonzero_B = norm_B > 0
    unit_BD = z_BD / norm_B.masked_fill(~is_nonzero_B, 1.0)[:, None]
    scalars = [norm_B.sum(), norm_B.square().sum(), torch.ones_like(norm_B).sum(), is_nonzero_B.sum()]
    return torch.cat([z_BD.sum(0), unit_BD.sum(0), torch.stack(scalars)])


def embedding_metrics(batches: list[Tensor]) -> dict[str, float]:
    r"""Figures of all strains of all ranks, from the sums of each batch.

    Args:
        batches: of :func:`embedding_sums`; waits for the device once.

    Returns:
        ``embedding_norm``: mean of :math:`\lVert z\rVert`.

        ``embedding_spread``: :math:`\sum\lVert z_i-\bar z\rVert^2 / \sum\lVert z_i\rVert^2`, from 0, all strains have
        the same embedding, to 1, they lie around the origin. It is the Dirichlet energy over all pairs of strains,
        :math:`\frac{1}{2n}\sum_{ij}\lVert z_i-z_j\rVert^2`, relative to the squared length (Cai and Wang 2020,
        arXiv:2006.13318, there over the edges of a graph).

        ``embedding_cosine``: mean cosine of all pairs of different strains; 1 where all point the same way. One minus
        it is the mean average distance of Chen et al. 2020, arXiv:1909.03211, over all pairs. A zero embedding has no
        direction and is left out.

        What is undefined is NaN.
    """
    sums = collect_rows(torch.stack(batches)).sum(0)
    width = (len(sums) - 4) // 2
    total_D, units_D = sums[:width], sums[width : 2 * width]
    lengths = torch.stack([total_D.square().sum(), units_D.square().sum()])
    of_total, of_units, norms, squares, n, nonzero = torch.cat([lengths, sums[-4:]]).tolist()
    spread = 1 - of_total / (n * squares) if squares > 0 else math.nan
    cosine = (of_units - nonzero) / (nonzero * (nonzero - 1)) if nonzero > 1 else math.nan
    return {
        "embedding_norm": norms / n if n else math.nan,
        # Rounding may lead out of the range.
        "embedding_spread": spread if math.isnan(spread) else min(1.0, max(0.0, spread)),
        "embedding_cosine": cosine if math.isnan(cosine) else min(1.0, max(-1.0, cosine)),
    }


class Outcome(NamedTuple):
    """What a step computes of a batch.

    Attributes:
        loss: scalar.
        outputs_BT, target_BT: predictions and labels in normalised units.
        summed: loss, its terms and one, each times the number of labels.
    """

    loss: Tensor
    outputs_BT: Tensor
    target_BT: Tensor
    summed: Tensor


class StrainTask(pl.LightningModule):
    """Learning phenotypes from genotypes.

    Labels are normalised by the training part's statistics; the loss is taken in normalised units, metrics in both.
    A step only enqueues work on the device: predictions and losses, or sums of them, stay there until the epoch ends.

    Args:
        model: genotypes → predictions in normalised units.
        normaliser: label statistics of the training part.
        phenotypes: T names.
        kinds: T kinds of labels; see ``Strains.kinds``.
        loss: of predictions in normalised units; its buffers travel with checkpoints.
        optimizer, scheduler: validated.
        epochs: of the whole training.
        steps: optimiser steps of the whole training.
        record: where every epoch's metrics go.
        about: what checkpoints say of themselves, plain containers.
        pictures: draws the validation part while the model learns; nothing where None.
        train_ranking: whether to keep an epoch's predictions of the training part, for the metrics that compare ranks.
        cuda_graph: launch each training step as one CUDA graph, see ``WholeStep``; Lightning's loop then only counts.
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
        cuda_graph: bool = False,
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
        self._validated: list[Prediction] = []
        self._epoch_metrics: dict[str, float] = {}
        self._started = 0.0
        self._learning_rate = math.nan
        self.whole_step = WholeStep(self._whole) if cuda_graph else None
        # All ranks hold the same graph: DistributedDataParallel need not send it around before every step.
        self._ddp_params_and_buffers_to_ignore = [name for name, _ in self.named_buffers()]

    def setup(self, stage: str) -> None:
        """Take what the first rank chose for `auto`: ranks that chose by themselves, or by a file that an earlier run
        left, could compute differently.
        """
        if isinstance(self.model, PerturbedModel) and self.model.config.is_autotuned():
            autotuned = self.trainer.strategy.broadcast(self.model.autotuned)
            if autotuned is not None:
                self.model.choose(autotuned)

    def training_step(self, batch: Strains, batch_idx: int) -> Tensor:
        """Loss of one batch, in normalised units; with a CUDA graph the weights have made their step as well."""
        if self.whole_step is None:
            return self._note(self._compute(batch), batch.labels)
        (group,) = self._optimizer().param_groups
        outcome = Outcome(*self.whole_step(batch, (self.current_epoch, group["lr"])))
        return self._note(outcome, batch.labels)

    def validation_step(self, batch: Strains, batch_idx: int) -> None:
        """Remember predictions and labels of one batch; the loss is that of the whole part, not of batches."""
        prediction: Prediction = self.model(batch.perturbations)
        self._validated.append(prediction.as_numbers())
        if prediction.embedding is not None:
            self._embedding_sums.append(embedding_sums(prediction.embedding))
        outputs_BT = self._validated[-1].phenotypes
        self._seen["validation"].append((outputs_BT, batch.labels, outputs_BT.new_zeros(0, 0)))

    def _optimizer(self) -> torch.optim.Optimizer:
        optimizer = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, torch.optim.Optimizer)
        return optimizer

    def _whole(self, batch: Strains) -> Outcome:
        """All of a training step that happens on the device, in the order in which Lightning does it."""
        optimizer = self._optimizer()
        outcome = self._compute(batch)
        optimizer.zero_grad()
        outcome.loss.backward()
        if self.trainer.gradient_clip_val is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters(), self.trainer.gradient_clip_val)
        optimizer.step()
        return outcome._replace(loss=outcome.loss.detach())

    # What Lightning does around a step has been done where the step is a whole.

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Gradients of the loss."""
        if self.whole_step is None:
            super().backward(loss, *args, **kwargs)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        """Forget the gradients of the step before."""
        if self.whole_step is None:
            super().optimizer_zero_grad(epoch, batch_idx, optimizer)

    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        """Clip the gradients."""
        if self.whole_step is None:
            super().configure_gradient_clipping(optimizer, *args, **kwargs)

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Callable[[], Any] | None = None
    ) -> None:
        """Let the closure compute the step, and the optimiser use its gradients."""
        if self.whole_step is None:
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        else:
            assert optimizer_closure is not None
            self.trainer.precision_plugin._wrap_closure(self, optimizer.optimizer, optimizer_closure)

    def _draws(self) -> bool:
        return self.pictures is not None and self.pictures.due(self.current_epoch)

    def _compute(self, batch: Strains) -> Outcome:
        prediction: Prediction = self.model(batch.perturbations)
        target_BT = self.normaliser.normalise(batch.labels)
        loss: LossTerms = self.loss(prediction, target_BT, self.current_epoch)
        present = (~batch.labels.isnan()).sum()
        # All terms are those of the batches of all ranks; each rank counts them as often as it has labels.
        summed = torch.stack([loss.total.detach(), *loss.terms.values(), torch.ones_like(loss.total)]) * present
        self._terms["train"] = list(loss.terms)
        return Outcome(loss.total, prediction.phenotypes.detach().float(), target_BT, summed.double())

    def _note(self, outcome: Outcome, labels_BT: Tensor) -> Tensor:
        """Remember what the epoch's metrics need of a batch of training; gives its loss."""
        loss, outputs_BT, target_BT, summed = outcome
        if self._sums is not None:
            self._sums.add(self._pair_sums(outputs_BT, labels_BT, target_BT), summed)
        else:
            self._seen["train"].append((outputs_BT, labels_BT, summed[None]))
        return loss

    def _validation_loss(self, prediction: Prediction) -> Tensor:
        """[1, L] the loss of the whole part of all ranks, its terms, and one: however it was cut into batches."""
        labels_ST = collect_rows(torch.cat([labels for _, labels, _ in self._seen["validation"]]))
        with all_rows_here():
            loss: LossTerms = self.loss(prediction, self.normaliser.normalise(labels_ST), self.current_epoch)
        self._terms["validation"] = list(loss.terms)
        return torch.stack([loss.total, *loss.terms.values(), torch.ones_like(loss.total)]).double()[None]

    def _pair_sums(self, outputs_BT: Tensor, labels_BT: Tensor, target_BT: Tensor) -> Tensor:
        """[2, T, 12] sums in original and in normalised units."""
        predicted = torch.stack([self.normaliser.restore(outputs_BT), self.normaliser.expect(outputs_BT)])
        return pair_sums(predicted, torch.stack([labels_BT, target_BT]))

    def on_train_epoch_start(self) -> None:
        """Start the clock."""
        self._started = time.perf_counter()
        self._seen["train"].clear()
        if self._sums is not None:
            self._sums.clear()

    def on_validation_epoch_start(self) -> None:
        """Forget what a sanity check may have left."""
        for seen in (self._seen["validation"], self._embedding_sums, self._validated):
            seen.clear()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Remember the learning rate of this step: schedules move on before the epoch is recorded."""
        self._learning_rate = float(optimizer.param_groups[0]["lr"])

    def on_validation_epoch_end(self) -> None:
        """Validation metrics, exact over all ranks; and a picture where one is due."""
        prediction = joined(self._validated).with_rows(collect_rows)
        self._validated.clear()
        losses = self._validation_loss(prediction)
        restored_ST, labels_ST, self._epoch_metrics = self._measure("validation", losses)
        if self._embedding_sums:
            metrics = embedding_metrics(self._embedding_sums)
            self._epoch_metrics |= {f"validation/{name}": value for name, value in metrics.items()}
        if self._draws():
            self._draw(restored_ST, labels_ST, prediction.embedding)

    def _draw(self, restored_ST: Tensor, labels_ST: Tensor, embedding_SD: Tensor | None) -> None:
        """The picture of the epoch, of all strains, which the first rank draws."""
        if self.trainer.is_global_zero:
            assert self.pictures is not None
            self.pictures.draw(self.current_epoch, self.phenotypes, restored_ST, labels_ST, embedding_SD)

    def on_train_epoch_end(self) -> None:
        """Figures of the epoch, written to its record and logged at once, so that they are one row of any logger."""
        metrics = self._measure("train")[2] if self._sums is None else self._measure_sums(self._sums)
        seconds = time.perf_counter() - self._started
        metrics |= {"learning_rate": self._learning_rate, "seconds": seconds, **self._epoch_metrics}
        self.log_dict(metrics, logger=False)
        if self.trainer.is_global_zero:
            line = self.record.write(self.current_epoch, self.global_step, metrics)
            if logging.getLogger("dglcell").level <= logging.INFO:  # NOTSET in a script that says nothing of it
                self.print(line)
            # Not by Lightning, which logs after the checkpoint: a run that is killed in between would lack the row.
            for logger in self.loggers:
                logger.log_metrics({"epoch": self.current_epoch, **metrics}, self.global_step - 1)
        for scheduler in self.trainer.lr_scheduler_configs:
            if isinstance(scheduler.scheduler, ReduceLROnPlateau):
                scheduler.scheduler.step(metrics["validation/loss"])

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """Advance a schedule, but for plateaus.

        Lightning would step a plateau only after the epoch's checkpoint is written, and a continued run would have
        missed that step; so it is done in ``on_train_epoch_end``.
        """
        if not isinstance(scheduler, ReduceLROnPlateau):
            scheduler.step()

    def _measure(self, part: str, losses: Tensor | None = None) -> tuple[Tensor, Tensor, dict[str, float]]:
        """Predictions and labels [S, T] of all ranks, in original units, and the metrics of the epoch.

        Args:
            part: of the split.
            losses: see ``_name_metrics``; those of the batches of all ranks where None.
        """
        outputs, labels, of_batches = self._seen_rows(part)
        outputs_ST, labels_ST = collect_rows(outputs), collect_rows(labels)
        losses = collect_rows(of_batches) if losses is None else losses
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
        return restored_ST, labels_ST, self._name_metrics(part, losses, scores)

    def _measure_sums(self, sums: EpochSums) -> dict[str, float]:
        """The metrics of the training part, from the sums of all ranks."""
        pairs, losses = (collect_rows(rows) for rows in sums.rows())
        sums.clear()
        original, normalised = sum_rows(pairs).cpu()
        scores = [(metrics_of(o), metrics_of(n)) for o, n in zip(original, normalised, strict=True)]
        return self._name_metrics("train", losses, scores)

    def _name_metrics(
        self, part: str, losses: Tensor, scores: list[tuple[dict[str, float], dict[str, float]]]
    ) -> dict[str, float]:
        """The metrics of an epoch by their names.

        Args:
            part: of the split.
            losses: a row per batch or rank; the last column holds the numbers of labels.
            scores: of each phenotype in original and in normalised units.
        """
        *totals, present = losses.sum(0).tolist()
        names = [f"{part}/loss", *(f"{part}/loss/{term}" for term in self._terms[part])]
        metrics = {name: total / max(present, 1.0) for name, total in zip(names, totals, strict=True)}
        means: dict[str, list[float]] = {}
        for name, (original, normalised) in zip(self.phenotypes, scores, strict=True):
            metrics |= {f"{part}/{name}/{metric}": value for metric, value in original.items()}
            metrics |= {f"{part}/{name}/normalised/{m}": normalised[m] for m in ("mse", "rmse", "mae")}
            for metric in [m for m in ("pearson", "average_precision") if m in original]:
                means.setdefault(metric, []).append(original[metric])
        return metrics | {f"{part}/{metric}": _mean_of_finite(values) for metric, values in means.items()}

    def configure_optimizers(self) -> Any:
        """Optimiser and schedule."""
        optimizer = make_optimizer(self.optimizer_config, parameter_groups(self.optimizer_config, self.model))
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
                do="lower `optimizer.lr`, or set `trainer.gradient_clip_val`; earlier epochs' checkpoints are kept",
            )
        checkpoint["dglcell"] = self.about
        checkpoint["unfinished"] = self._unfinished()
        checkpoint["rng"] = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_available():
            checkpoint["rng"]["cuda"] = torch.cuda.get_rng_state_all()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Put the generators back where they were; the optimiser counts its steps where this device has it do so."""
        torch.set_rng_state(checkpoint["rng"]["cpu"])
        device = self.trainer.strategy.root_device.type
        for state in checkpoint["optimizer_states"]:
            for group in state["param_groups"]:
                if "capturable" in group and "capturable" not in self.optimizer_config.options:
                    group["capturable"] = device == "cuda"
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
        """What the epoch's metrics need of its steps so far, of all ranks; None between epochs."""
        if not (self._seen["train"] or self._sums):
            return None
        rows = self._sums.rows() if self._sums else self._seen_rows("train")
        seen = [collect_rows(one) for one in rows]
        return {"seen": seen, "seconds": time.perf_counter() - self._started}

    def _seen_rows(self, part: str) -> tuple[Tensor, Tensor, Tensor]:
        """Predictions and labels [S, T] of this rank, and its losses, a row per batch."""
        predictions, labels, losses = zip(*self._seen[part], strict=True)
        return torch.cat(predictions), torch.cat(labels), torch.cat(losses)


def _mean_of_finite(values: list[float]) -> float:
    """Their mean; zero if none is finite."""
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else 0.0
