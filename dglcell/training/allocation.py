"""Whether SLURM started as many processes, with as many GPUs, as the experiment asks for."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch

from dglcell.config import TrainerConfig
from dglcell.errors import ConfigError


def check_allocation(trainer: TrainerConfig, environment: Mapping[str, str] = os.environ) -> None:
    """Compare a job's tasks, nodes and GPUs with `trainer.devices` and `trainer.num_nodes`, before anything waits.

    Processes that wait for others that were never started hang until the job's time is up; and a job that was given
    GPUs must not train on CPUs because torch does not see them. Outside SLURM, and in an interactive shell of it, there
    is nothing to compare.

    Raises:
        ConfigError: the numbers differ; with both.
    """
    if "SLURM_JOB_ID" not in environment or environment.get("SLURM_JOB_NAME") in ("bash", "interactive"):
        return
    nodes, tasks = (int(environment.get(name, "1")) for name in ("SLURM_NNODES", "SLURM_NTASKS"))
    wanted = trainer.devices * trainer.num_nodes
    if (nodes, tasks) != (trainer.num_nodes, wanted):
        raise ConfigError(
            "the job does not fit the experiment",
            got=f"{tasks} tasks on {nodes} nodes from SLURM",
            expected=f"{wanted} tasks on {trainer.num_nodes} nodes: `trainer.devices: {trainer.devices}`, "
            f"`trainer.num_nodes: {trainer.num_nodes}`",
            do="let `dglcell job submit` make the script, or change these keys",
        )
    if wanted > 1 and "SLURM_STEP_NUM_TASKS" not in environment:
        raise ConfigError(
            "the job starts one process where the experiment needs several",
            got="`dglcell train` in the script itself",
            expected=f"{wanted} processes: `srun dglcell train …`",
            do="let `dglcell job submit` make the script",
        )
    _check_gpus(trainer, environment)


def _check_gpus(trainer: TrainerConfig, environment: Mapping[str, str]) -> None:
    given, seen = int(environment.get("SLURM_GPUS_ON_NODE", "0")), torch.cuda.device_count()
    if trainer.accelerator == "cpu" or (trainer.accelerator == "auto" and given == 0) or seen >= trainer.devices:
        return
    raise ConfigError(
        "the job has other GPUs than the experiment needs",
        got=f"{given} GPUs on this node from SLURM, {seen} that torch sees",
        expected=f"{trainer.devices} GPUs: `trainer.devices: {trainer.devices}`",
        do="install a torch with CUDA, run containers with --nv, or set `trainer.accelerator: cpu`",
    )
