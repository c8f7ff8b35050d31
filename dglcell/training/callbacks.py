"""Handle what happens around Lightning's steps, and between the processes of a run."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from lightning_fabric.plugins import CheckpointIO
from lightning_fabric.plugins.environments import ClusterEnvironment
from pytorch_lightning.callbacks import Callback, GradientAccumulationScheduler
from torch import Tensor

from dglcell.data.datamodule import StrainDataModule
from dglcell.data.strains import Strains
from dglcell.errors import CheckpointError, DglcellError, StoppedError, listing
from dglcell.files import signals_blocked
from dglcell.files.atomic import atomic_file
from dglcell.files.owner import refuse_if_taken_over
from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import read_checkpoint
from dglcell.training.signals import PARENT, SIGNALS, StopSignals

log = logging.getLogger("dglcell")


class CheckpointFiles(CheckpointIO):
    """Write and read the checkpoints of a run for Lightning."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a temporary file, wait until it is on disk, and rename it."""
        try:
            with atomic_file(Path(path)) as partial, open(partial, "wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
        except (OSError, RuntimeError) as error:
            # The error of torch only says that a position is unexpected; the exception behind it has the reason.
            reason = error.__context__ if isinstance(error.__context__, OSError) else error
            do = "make room or choose another `paths.runs`; the same command goes on from the last checkpoint"
            raise CheckpointError(f"checkpoint '{path}' cannot be written", got=reason, do=do) from error

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Return the content of a checkpoint, on the host."""
        content = read_checkpoint(Path(path))
        for state in content["callbacks"].values():  # a run that was moved or copied keeps its best epochs
            state |= {"dirpath": os.path.realpath(Path(path).parent)} if "dirpath" in state else {}
        return content

    def remove_checkpoint(self, path: Any) -> None:
        """Delete a checkpoint if it is there."""
        refuse_if_taken_over(Path(path))
        Path(path).unlink(missing_ok=True)


def is_distributed() -> bool:
    """Return whether this process is in a group, perhaps of itself alone."""
    return dist.is_available() and dist.is_initialized()


def collect_rows(rows: Tensor) -> Tensor:
    """Concatenate ``rows`` [n_r, …] of every rank; n_r may differ. A single process gets its own rows back."""
    if not is_distributed():
        return rows
    count = torch.tensor([len(rows)], device=rows.device)
    counts = [torch.zeros_like(count) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, count)
    lengths = [int(c) for c in counts]
    padded = torch.cat([rows, rows.new_zeros(max(lengths) - len(rows), *rows.shape[1:])])
    everyone = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(everyone, padded)
    return torch.cat([part[:length] for part, length in zip(everyone, lengths, strict=True)])


# Texts with which gloo, NCCL and their store report that a process is gone, has not answered in time or never joined;
# gloo's errors have no type of their own.
LOST = (
    *("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused", "remote process"),
    *("Timed out waiting", "wait timeout after", "seconds waiting for clients", "client socket has timed out"),
    "Watchdog caught collective operation timeout",
)


class HostGroup:
    """A host group has all ranks, which communicate through their hosts (gloo) without waiting for the devices' queues.

    All ranks must make it at once, with the time for which they wait for one another. A single process sends nothing.
    """

    def __init__(self, timeout: timedelta) -> None:
        many = is_distributed() and dist.get_world_size() > 1
        self._group = dist.new_group(backend="gloo", timeout=timeout) if many else None

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Return the largest of the ranks' numbers at each place."""
        if self._group is None:
            return list(numbers)
        everyone = torch.tensor([int(number) for number in numbers], device="cpu")
        dist.all_reduce(everyone, dist.ReduceOp.MAX, group=self._group)
        return [int(number) for number in everyone]

    def collect(self, item: Any) -> list[Any]:
        """Return the ranks' items, on every rank."""
        if self._group is None:
            return [item]
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, item, group=self._group)
        return everyone


def leave_group() -> None:
    """End this process's part in the group; a process that exits without it may abort (`terminate called`)."""
    if is_distributed():
        dist.destroy_process_group()


@contextmanager
def launched(trainer: pl.Trainer) -> Iterator[None]:
    """Tell the processes that Lightning starts inside the context that they belong to this run."""
    environment = getattr(trainer.strategy, "cluster_environment", None)
    before = set(os.environ)
    if isinstance(environment, ClusterEnvironment) and not environment.creates_processes_externally:
        os.environ[PARENT] = str(os.getpid())
        launcher: Any = trainer.strategy.launcher
        # Ctrl-C reaches all processes, and a new one would fail during its imports.
        launcher._call_children_scripts = signals_blocked(SIGNALS)(launcher._call_children_scripts)
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not any(text in str(error) for text in LOST):
            raise
        what = "another process of this run has ended, or has not answered within `trainer.timeout`"
        do = "look at its log, and for memory that ran out; then give the same command again. Between machines, "
        do += "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name the network"
        raise DglcellError(what, got=str(error).rpartition("] ")[2], do=do) from error
    finally:
        # Lightning leaves what it told the others; another training of this process shall not take it over.
        for name in {PARENT, "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE"} - before:
            os.environ.pop(name, None)


class Preemption(Callback):
    """Write a checkpoint and stop after the optimiser step during which ``SIGUSR1``, ``SIGTERM`` or Ctrl-C came.

    Signals are only noted when they come: collectives inside a signal handler can deadlock. All ranks learn of them at
    the same place of the same step, so that they save and stop together. A loss that is not finite ends the run, too.
    """

    def __init__(
        self,
        directory: RunDirectory,
        signals: StopSignals,
        accumulation: GradientAccumulationScheduler | None,
        timeout: timedelta,
    ) -> None:
        self.directory, self.signals, self.accumulation, self.timeout = directory, signals, accumulation, timeout
        self._hosts = HostGroup(timeout)
        #: loss, strains, step and number of the batches whose loss was not looked at
        self._losses: list[tuple[Tensor, Tensor, int, int]] = []
        self._stepped = False

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Meet the other ranks; stop if one was told to while data was loaded."""
        self._hosts = HostGroup(self.timeout)
        # Lightning sets this when an epoch starts, and not where one is continued.
        if self.accumulation is not None:
            trainer.accumulate_grad_batches = self.accumulation.get_accumulate_grad_batches(trainer.current_epoch)
        self.on_train_epoch_start(trainer, module)

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Stop if a rank was told to since the last step."""
        (number,) = self._hosts.largest([self.signals.number])
        if number:
            raise StoppedError(number)

    def on_before_optimizer_step(self, trainer: pl.Trainer, *others: object) -> None:
        """Allow stopping only after accumulated gradients are used, because they would be lost."""
        self._stepped = True

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save and stop, if any rank was told to."""
        assert isinstance(batch, Strains)
        stepped, self._stepped = self._stepped, False
        step = trainer.global_step + (not stepped)
        self._losses.append((outputs["loss"].detach(), batch.rows, step, batch_idx + 1))
        if not stepped:
            return
        last = trainer.is_last_batch
        looks = last or module.device.type == "cpu"  # within an epoch nothing waits for a GPU
        number, bad = self._hosts.largest([self.signals.number, looks and self._bad_batch() is not None])
        if number and not looks:
            (bad,) = self._hosts.largest([self._bad_batch() is not None])
        if bad:
            raise self._not_finite(trainer)
        # After the last batch of an epoch the run stops only when the epoch is finished and its checkpoint written.
        if not number or last:
            return
        trainer.save_checkpoint(self.directory.interrupted)
        if trainer.is_global_zero:
            log.info("told to stop: epoch %d, step %d saved", trainer.current_epoch + 1, trainer.global_step)
        (requeued,) = self._hosts.largest([self.signals.ask(number)])
        raise StoppedError(number, bool(requeued))

    def _bad_batch(self) -> tuple[int, int, float, list[int]] | None:
        """Return number, step, loss and strains of the first batch whose loss is not finite."""
        losses = torch.stack([loss for loss, *_ in self._losses]).tolist() if self._losses else []
        for loss, (_, strains, step, batch) in zip(losses, self._losses, strict=True):
            if not math.isfinite(loss):
                return batch, step, loss, strains.tolist()
        self._losses.clear()
        return None

    def _not_finite(self, trainer: pl.Trainer) -> Exception:
        """Return the error with the strains of all ranks, because they compute the loss of their batches together."""
        found = [bad for bad in self._hosts.collect(self._bad_batch()) if bad is not None]
        batch, step, loss, _ = min(found, key=lambda bad: bad[0])
        strains = [strain for number, *_, of_rank in found if number == batch for strain in of_rank]
        got = f"{loss} in step {step}, batch {batch}: strains {listing(strains, 20)} of the store"
        do = "lower `optimizer.lr`, set `trainer.gradient_clip_val`, or look for outliers with `dglcell data stats`"
        what = f"the training loss is not finite in epoch {trainer.current_epoch + 1}"
        return DglcellError(what, got=got, do=f"{do}; earlier checkpoints are kept")

    def on_load_checkpoint(self, trainer: pl.Trainer, module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Let the loader begin after the batches that are done."""
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        # `completed` is not used: within `on_train_batch_end` the batch only counts as processed.
        done = 0 if progress["is_last_batch"] else int(progress["current"]["processed"])
        data: StrainDataModule = trainer.datamodule  # type: ignore[attr-defined]
        data.first_batch = done
