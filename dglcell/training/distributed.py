"""Manage the several processes of one run: their devices, their start, their communication, and their loss."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from lightning_fabric.plugins.environments import ClusterEnvironment
from torch import Tensor

from dglcell.config.experiment import TrainerConfig
from dglcell.errors import ConfigError, DglcellError
from dglcell.files.owner import signals_blocked
from dglcell.machine import number_of
from dglcell.training.signals import PARENT, SIGNALS

log = logging.getLogger("dglcell")


def check_allocation(trainer: TrainerConfig, environment: Mapping[str, str] = os.environ) -> None:
    """Compare a job's tasks, nodes and GPUs with `trainer.devices` and `trainer.num_nodes`, before anything waits.

    Processes that wait for others that were never started hang until the job's time is up. A job that was given GPUs
    must not train on CPUs because torch does not see them. Outside SLURM, and in an interactive shell of SLURM, nothing
    is compared.

    Raises:
        ConfigError: the numbers differ; the error names both.
    """
    if "SLURM_JOB_ID" not in environment or environment.get("SLURM_JOB_NAME") in ("bash", "interactive"):
        return
    nodes, tasks = (number_of(environment, name, 1) for name in ("SLURM_NNODES", "SLURM_NTASKS"))
    wanted, keys = trainer.devices * trainer.num_nodes, f"`trainer.devices: {trainer.devices}`"
    remedy = "let `dglcell job submit` make the script, or change these keys"
    if (nodes, tasks) != (trainer.num_nodes, wanted):
        expected = f"{wanted} tasks on {trainer.num_nodes} nodes: {keys}, `trainer.num_nodes: {trainer.num_nodes}`"
        got = f"{tasks} tasks on {nodes} nodes from SLURM"
        raise ConfigError("the job does not fit the experiment", got=got, expected=expected, do=remedy)
    if wanted > 1 and "SLURM_STEP_NUM_TASKS" not in environment:
        what = "the job starts one process where the experiment needs several"
        raise ConfigError(what, expected=f"{wanted} processes: `srun dglcell train …`", do=remedy)
    given, seen = number_of(environment, "SLURM_GPUS_ON_NODE", 0), torch.cuda.device_count()
    wants = trainer.accelerator != "cpu" and (given > 0 or trainer.accelerator != "auto")
    if wants and seen < trainer.devices:
        got, expected = (
            f"{given} GPUs on this node from SLURM, {seen} that torch sees",
            f"{trainer.devices} GPUs: {keys}",
        )
        do = "install a torch with CUDA, run containers with --nv, or set `trainer.accelerator: cpu`"
        raise ConfigError("the job has other GPUs than the experiment needs", got=got, expected=expected, do=do)


def collect_rows(rows: Tensor) -> Tensor:
    """Concatenate ``rows`` [n_r, …] of every rank; n_r may differ. A single process gets its own rows back."""
    if not (dist.is_available() and dist.is_initialized()):
        return rows
    world_size = dist.get_world_size()
    count = torch.tensor([len(rows)], device=rows.device)
    counts = [torch.zeros_like(count) for _ in range(world_size)]
    dist.all_gather(counts, count)
    lengths = [int(c) for c in counts]
    padded = torch.cat([rows, rows.new_zeros(max(lengths) - len(rows), *rows.shape[1:])])
    everyone = [torch.empty_like(padded) for _ in range(world_size)]
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

    All ranks must make it at once. If there is only one process nothing is sent.

    Args:
        timeout: time for which ranks wait for one another; a new group does not inherit it from another group.
    """

    def __init__(self, timeout: timedelta) -> None:
        many = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
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
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def launched(trainer: pl.Trainer) -> Iterator[None]:
    """Tell the processes that Lightning starts inside the context that they belong to this run.

    Raises:
        DglcellError: another process has ended inside the context, or does not answer.
    """
    environment = getattr(trainer.strategy, "cluster_environment", None)
    before = set(os.environ)
    if isinstance(environment, ClusterEnvironment) and not environment.creates_processes_externally:
        os.environ[PARENT] = str(os.getpid())
        launcher: Any = trainer.strategy.launcher
        start = launcher._call_children_scripts

        def start_blocked() -> None:  # Ctrl-C reaches all processes, and a new one would fail during its imports
            with signals_blocked(SIGNALS):
                start()

        launcher._call_children_scripts = start_blocked
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not any(text in str(error) for text in LOST):
            raise
        raise DglcellError(
            "another process of this run has ended, or has not answered within `trainer.timeout`",
            got=str(error).rpartition("] ")[2],
            do="look at its log, and for memory that ran out; then give the same command again. Between machines, "
            "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name the network",
        ) from error
    finally:
        # Lightning leaves what it told the others; another training of this process shall not take it over.
        for name in {PARENT, "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE"} - before:
            os.environ.pop(name, None)
