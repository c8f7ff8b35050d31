"""Define the training for Lightning: the loss of a batch, a whole step, metrics of an epoch, and the optimiser."""

from __future__ import annotations

import gc
import logging
import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import GradientAccumulationScheduler
from pytorch_lightning.plugins.precision import DoublePrecision, Precision
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from dglcell.config.experiment import Config
from dglcell.data.dataset import Normaliser
from dglcell.data.strains import Strains
from dglcell.data.table import CLASSIFICATION
from dglcell.errors import CLEAR_LINE, DglcellError
from dglcell.losses.loss import LossTerms, all_rows_here, make_loss
from dglcell.metrics import classification_metrics, error_metrics, regression_metrics
from dglcell.models.model import Prediction, StrainModel, joined
from dglcell.optimizers import make_optimizer, make_scheduler, rate_of
from dglcell.runs import EpochLog
from dglcell.training.callbacks import collect_rows

log = logging.getLogger("dglcell")

WORTH = 20  # steps of a kind that are done before one is recorded; recording takes about as long as these
ASIDE = 3  # steps before recording that run on another stream, where libraries make what they keep

Work = Callable[[Strains], Sequence[Tensor]]  # everything that a step does on the device; and what is read of it
Replay = Callable[[], Sequence[Tensor]]  # does it once more, with what lies in the recorded batch now


def fits(trainer: pl.Trainer) -> bool:
    """Return whether a run's steps are alike: of one process, in one precision, an optimiser's step for every batch."""
    alike = trainer.world_size == trainer.accumulate_grad_batches == 1
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    alike &= not any(isinstance(callback, GradientAccumulationScheduler) for callback in callbacks)
    return alike and type(trainer.precision_plugin) in (Precision, DoublePrecision)


def record(work: Work, batch: Strains) -> Replay:
    """Record a step as a CUDA graph, which computes nothing yet."""
    gc.collect()  # what is freed during a recording would be freed by other rules
    torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = work(batch)

    def replay() -> Sequence[Tensor]:
        graph.replay()
        return results

    return replay


def aside(work: Work, batch: Strains) -> Sequence[Tensor]:
    """Do a step on another stream than the usual one, as must be done before a graph is recorded."""
    here, there = torch.cuda.current_stream(), torch.cuda.Stream()
    there.wait_stream(here)
    with torch.cuda.stream(there):
        results = work(batch)
    here.wait_stream(there)
    return results


def say_epoch(line: str, done: float, *, in_place: bool) -> None:
    """Print the line of an epoch; a terminal shows the last one alone, behind a bar for the share that is done."""
    end = "\n"
    if in_place and sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 1  # a line that wraps could not be replaced
        line = CLEAR_LINE + f"[{'#' * round(12 * done):-<12}] {line}"[:width]
        end = "\r" if done < 1 else end
    print(line, end=end, flush=True)


class WholeStep:
    """Do training steps, by a recorded one as soon as one is worth it: forward, backward and the optimiser's step.

    A step launches hundreds of small kernels, and a fast GPU waits for the host. A CUDA graph holds all of them and
    is launched at once. Its addresses and shapes are fixed: batches are copied to where the first one lay. A batch
    of another shape, such as the last of an epoch, is computed without the graph. Steps that wait for the device,
    as some cell graphs make them do, cannot be recorded; then all are done as ever.
    """

    def __init__(
        self,
        work: Work,
        record: Callable[[Work, Strains], Replay] = record,
        aside: Callable[[Work, Strains], Sequence[Tensor]] = aside,
    ) -> None:
        self._work, self._record, self._aside = work, record, aside
        self._seen: Counter[Hashable] = Counter()
        #: shapes of a batch → what its step depends on beside it, where the batch lies, and how to do the step
        self._recorded: dict[Hashable, tuple[Hashable, Strains, Replay]] = {}
        self._gave_up = False

    def __call__(self, batch: Strains, key: Hashable) -> list[Tensor]:
        """Do a step, and return tensors of their own with its results.

        Where the key changes, on which the step depends beside the batch and the weights, it is recorded anew.
        """
        if self._gave_up:
            return list(self._work(batch))
        shapes = tuple(tensor.shape for tensor in tensors_of(batch))
        known = self._recorded.get(shapes)
        if known is None or known[0] != key:
            self._seen[shapes, key] += 1
            left = WORTH - self._seen[shapes, key]
            if left >= 0:
                return list(self._aside(self._work, batch) if left < ASIDE else self._work(batch))
            self._recorded.pop(shapes, None)  # its memory is free for the next
            own = batch.map(torch.clone)
            try:
                self._recorded[shapes] = known = key, own, self._record(self._work, own)
            except RuntimeError as error:
                reason = str(error).partition("\n")[0]
                log.info("steps are launched one by one; a CUDA graph cannot hold them: %s", reason)
                self._gave_up = True
                return list(self._work(batch))
        _, own, replay = known
        for mine, theirs in zip(tensors_of(own), tensors_of(batch), strict=True):
            mine.copy_(theirs)
        return [result.clone() for result in replay()]


def tensors_of(batch: Strains) -> list[Tensor]:
    """Return all that a step reads of a batch."""
    given = [batch.targets, batch.offsets, batch.activities, *batch.columns.values()]
    return [tensor for tensor in given if tensor is not None]


class StrainTask(pl.LightningModule):
    """The task is to learn phenotypes from genotypes.

    Labels are normalised by the training part's statistics; the loss is taken in normalised units, metrics in both.
    A step only enqueues work on the device: predictions, labels and losses stay there until the epoch ends.
    """

    def __init__(
        self,
        model: StrainModel,
        config: Config,
        normaliser: Normaliser,
        kinds: Mapping[str, str],
        *,
        steps: int,  # of the optimiser in the whole training
        record: EpochLog,
        about: dict[str, Any],  # what checkpoints record about their run
    ) -> None:
        super().__init__()
        self.model, self.config, self.normaliser, self.kinds = model, config, normaliser, dict(kinds)
        self.loss = make_loss(config.loss, config.trainer.epochs, config.data.batch_size)
        self.steps, self.record, self.about = steps, record, about
        self._seen: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {"train": [], "validation": []}
        self._terms: dict[str, list[str]] = {}
        self._validated: list[Prediction] = []
        self._epoch_metrics: dict[str, float] = {}
        self._started = 0.0
        self._learning_rate: float | Tensor = math.nan
        self.whole_step: WholeStep | None = None
        # All ranks hold the same graph, so DistributedDataParallel need not send it before every step.
        self._ddp_params_and_buffers_to_ignore = [name for name, _ in self.named_buffers()]

    def training_step(self, batch: Strains, batch_idx: int) -> Tensor:
        """Return the loss of one batch, in normalised units; as one piece, the weights have made their step as well."""
        if self.whole_step is None:
            loss, phenotypes, summed = self._compute(batch)
        else:
            rates = tuple(g["lr"] for g in self._optimizer().param_groups if not isinstance(g["lr"], Tensor))
            loss, phenotypes, summed = self.whole_step(batch, (self.loss.changes_by(self.current_epoch), rates))
        self._seen["train"].append((phenotypes, batch.labels, summed[None]))
        return loss

    def _compute(self, batch: Strains) -> tuple[Tensor, Tensor, Tensor]:
        prediction: Prediction = self.model(batch.perturbations)
        loss = self._loss(prediction, batch.labels)
        present = (~batch.labels.isnan()).sum()
        # All terms are those of the batches of all ranks; each rank weights them by its number of labels.
        summed = torch.stack([loss.total.detach(), *loss.terms.values(), torch.ones_like(loss.total)]) * present
        self._terms["train"] = list(loss.terms)
        return loss.total, prediction.phenotypes.detach().float(), summed.double()

    # A step as one piece, which Lightning only counts: what it does around a step has been done within it.

    def on_train_start(self) -> None:
        """Do steps as one piece where a CUDA graph can hold them."""
        if self.device.type == "cuda" and fits(self.trainer) and self.whole_step is None:
            self.whole_step = WholeStep(self._whole)

    def _optimizer(self) -> torch.optim.Optimizer:
        optimizer = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, torch.optim.Optimizer)
        return optimizer

    def _whole(self, batch: Strains) -> tuple[Tensor, Tensor, Tensor]:
        """Do all of a step that happens on the device, in the order in which Lightning does it."""
        optimizer, (loss, phenotypes, summed) = self._optimizer(), self._compute(batch)
        optimizer.zero_grad()
        loss.backward()
        if self.trainer.gradient_clip_val is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters(), self.trainer.gradient_clip_val)
        optimizer.step()
        return loss.detach(), phenotypes, summed

    def backward(self, *args: Any, **kwargs: Any) -> None:
        if self.whole_step is None:
            super().backward(*args, **kwargs)

    def optimizer_zero_grad(self, *args: Any, **kwargs: Any) -> None:
        if self.whole_step is None:
            super().optimizer_zero_grad(*args, **kwargs)

    def configure_gradient_clipping(self, *args: Any, **kwargs: Any) -> None:
        if self.whole_step is None:
            super().configure_gradient_clipping(*args, **kwargs)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        """Let the optimiser step, or only compute the step that has done so."""
        if self.whole_step is None:
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        else:
            self.trainer.precision_plugin._wrap_closure(self, optimizer.optimizer, optimizer_closure)

    def _loss(self, prediction: Prediction, labels_BT: Tensor) -> LossTerms:
        loss: LossTerms = self.loss(prediction, self.normaliser.normalise(labels_BT), self.current_epoch)
        return loss

    def validation_step(self, batch: Strains, batch_idx: int) -> None:
        """Remember predictions and labels of one batch; the loss is that of the whole part, not of batches."""
        prediction: Prediction = self.model(batch.perturbations)
        self._validated.append(prediction.as_numbers())
        outputs_BT = self._validated[-1].phenotypes
        self._seen["validation"].append((outputs_BT, batch.labels, outputs_BT.new_zeros(0, 0)))

    def on_train_epoch_start(self) -> None:
        self._started = time.perf_counter()
        self._seen["train"].clear()

    def on_validation_epoch_start(self) -> None:
        self._seen["validation"].clear()
        self._validated.clear()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Remember the learning rate of this step, because schedules move on before the epoch is recorded."""
        rate = optimizer.param_groups[0]["lr"]
        self._learning_rate = rate.clone() if isinstance(rate, Tensor) else rate

    def on_validation_epoch_end(self) -> None:
        """Compute validation metrics exactly over all ranks."""
        prediction = joined(self._validated).with_rows(collect_rows)
        self._validated.clear()
        labels_ST = collect_rows(torch.cat([labels for _, labels, _ in self._seen["validation"]]))
        with all_rows_here():  # so that the loss of the whole part does not depend on how it was cut
            loss = self._loss(prediction, labels_ST)
        self._terms["validation"] = list(loss.terms)
        losses = torch.stack([loss.total, *loss.terms.values(), torch.ones_like(loss.total)]).double()[None]
        self._epoch_metrics = self._measure("validation", losses)

    def on_train_epoch_end(self) -> None:
        """Write the figures of the epoch to its record and log them at once, so that they are one row of any logger."""
        metrics = self._measure("train")
        seconds = time.perf_counter() - self._started
        metrics |= {"learning_rate": float(self._learning_rate), "seconds": seconds, **self._epoch_metrics}
        self.log_dict(metrics, logger=False)
        if self.trainer.is_global_zero:
            line = self.record.write(self.current_epoch, self.global_step, metrics)
            if (level := logging.getLogger("dglcell").level) <= logging.INFO:  # NOTSET in a script without logging
                say_epoch(line, (self.current_epoch + 1) / self.config.trainer.epochs, in_place=level > logging.DEBUG)
            # Lightning would log this after the checkpoint, and a run killed in between would lack the row.
            for logger in self.loggers:
                logger.log_metrics({"epoch": self.current_epoch, **metrics}, self.global_step - 1)
        for scheduler in self.trainer.lr_scheduler_configs:
            if isinstance(scheduler.scheduler, ReduceLROnPlateau):
                scheduler.scheduler.step(metrics["validation/loss"])

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """Advance a schedule; one for plateaus has its step before the checkpoint of an epoch is written."""
        if not isinstance(scheduler, ReduceLROnPlateau):
            scheduler.step()

    def _measure(self, part: str, losses: Tensor | None = None) -> dict[str, float]:
        """Return the metrics of an epoch by their names; the last column of losses holds the numbers of labels."""
        outputs, labels, of_batches = self._seen_rows(part)
        outputs_ST, labels_ST = collect_rows(outputs), collect_rows(labels)
        *totals, present = (collect_rows(of_batches) if losses is None else losses).sum(0).tolist()
        self._seen[part].clear()
        names = [f"{part}/loss", *(f"{part}/loss/{term}" for term in self._terms[part])]
        metrics = {name: total / max(present, 1.0) for name, total in zip(names, totals, strict=True)}
        targets_ST, means = self.normaliser.normalise(labels_ST).cpu(), dict[str, list[float]]()
        expected_ST, restored_ST = (of(outputs_ST).cpu() for of in (self.normaliser.expect, self.normaliser.restore))
        labels_ST = labels_ST.cpu()
        for t, (name, kind) in enumerate(self.kinds.items()):
            original = regression_metrics(restored_ST[:, t], labels_ST[:, t])
            if kind == CLASSIFICATION:
                original |= classification_metrics(restored_ST[:, t], labels_ST[:, t])
            normalised = error_metrics(expected_ST[:, t], targets_ST[:, t])
            metrics |= {f"{part}/{name}/{metric}": value for metric, value in original.items()}
            metrics |= {f"{part}/{name}/normalised/{metric}": value for metric, value in normalised.items()}
            for metric in [m for m in ("pearson", "average_precision") if m in original]:
                means.setdefault(metric, []).append(original[metric])
        finite = {metric: [value for value in values if math.isfinite(value)] for metric, values in means.items()}
        return metrics | {f"{part}/{metric}": sum(of) / max(len(of), 1) for metric, of in finite.items()}

    def configure_optimizers(self) -> Any:
        """Make optimiser and schedule."""
        optimizer, epochs = make_optimizer(self.config.optimizer, self.model.parameters()), self.config.trainer.epochs
        scheduler = make_scheduler(self.config.scheduler, optimizer, epochs=epochs, steps=self.steps)
        return optimizer if scheduler is None else {"optimizer": optimizer, "lr_scheduler": scheduler}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add facts about the run, and the generators' states, so that a resumed run draws the same dropout masks."""
        if not torch.stack([weight.isfinite().all() for weight in self.model.parameters()]).all():
            do = "lower `optimizer.lr`, or set `trainer.gradient_clip_val`; earlier epochs' checkpoints are kept"
            what = f"weights are not finite after step {self.global_step}, in epoch {self.current_epoch + 1}"
            raise DglcellError(what, do=do)
        checkpoint["dglcell"] = self.about
        for state in (*checkpoint["optimizer_states"], *checkpoint["lr_schedulers"]):
            _with_plain_rates(state)
        checkpoint["unfinished"] = None
        if self._seen["train"]:  # what the epoch's metrics need of its steps so far, of all ranks
            seen = [collect_rows(one) for one in self._seen_rows("train")]
            checkpoint["unfinished"] = {"seen": seen, "seconds": time.perf_counter() - self._started}
        checkpoint["rng"] = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_available():
            checkpoint["rng"]["cuda"] = torch.cuda.get_rng_state_all()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the generators' states, and let the optimiser count its steps on the device only on a GPU."""
        torch.set_rng_state(checkpoint["rng"]["cpu"])
        device = self.trainer.strategy.root_device
        for state in checkpoint["optimizer_states"]:
            for group in state["param_groups"]:
                for name, elsewhere in (("capturable", False), ("fused", None)):
                    if name in group and name not in self.config.optimizer.options:
                        group[name] = True if device.type == "cuda" and "capturable" in group else elsewhere
                group["lr"] = rate_of(group, device)
        if "cuda" in checkpoint["rng"] and torch.cuda.device_count() == len(checkpoint["rng"]["cuda"]):
            torch.cuda.set_rng_state_all(checkpoint["rng"]["cuda"])
        unfinished = checkpoint.get("unfinished")
        if unfinished is not None:
            self._started = time.perf_counter() - unfinished["seconds"]
            # One rank takes this, because it has the rows of all ranks. It was read on the host.
            if self.trainer.is_global_zero:
                outputs, labels, losses = (tensor.to(device) for tensor in unfinished["seen"])
                self._seen["train"].append((outputs, labels, losses))

    def _seen_rows(self, part: str) -> tuple[Tensor, Tensor, Tensor]:
        """Return predictions and labels [S, T] of this rank, and its losses, a row per batch."""
        predictions, labels, losses = zip(*self._seen[part], strict=True)
        return torch.cat(predictions), torch.cat(labels), torch.cat(losses)


def _with_plain_rates(state: dict[str, Any]) -> None:
    """Write learning rates as numbers, wherever they were while they were used."""
    for group in (state, *state.get("param_groups", ())):
        for name, value in group.items():
            if isinstance(value, Tensor) and value.dim() == 0:
                group[name] = float(value)
            elif isinstance(value, list) and any(isinstance(one, Tensor) for one in value):
                group[name] = [float(one) for one in value]
