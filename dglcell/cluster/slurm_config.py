"""What an experiment asks of SLURM. Nodes and devices are `trainer.num_nodes` and `trainer.devices`: said once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dglcell.errors import ConfigError

TIME = re.compile(r"(\d+-)?\d+(:\d{2}){0,2}")
MEMORY = re.compile(r"\d+[KMGT]?")
ANY = "any"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class SlurmConfig:
    """Resources and surroundings of a job."""

    partition: str | None = None  # the cluster's default where null
    account: str | None = None
    qos: str | None = None
    time: str = "24:00:00"  # D-HH:MM:SS, HH:MM:SS or minutes
    memory: str | None = "32G"  # of every node; null: the cluster's default
    cpus_per_task: int = 4  # a task is one device
    gpu: str | None = None  # one per task: a type, e.g. a100, or any; null: only where `trainer.accelerator` is gpu
    modules: list[str] = field(default_factory=list)  # loaded before anything else
    setup: list[str] = field(default_factory=list)  # shell lines after that, e.g. source .venv/bin/activate
    environment: dict[str, str] = field(default_factory=dict)  # exported variables
    container: str | None = None  # image that the command runs in
    container_command: str = "apptainer exec --nv"  # how, up to the image
    binds: list[str] = field(default_factory=list)  # folders that the container sees
    mail: str | None = None  # address
    mail_type: str = "END,FAIL"
    requeue: bool = True  # preempted or out of time: save, queue again, continue
    warning: int = 120  # seconds before the end at which the job is told to save
    options: list[str] = field(default_factory=list)  # further options of sbatch, e.g. ["--exclusive"]
    logs: str = "slurm"  # folder of output files, below the one the job is submitted in

    def validate(self) -> None:
        """Check values.

        Raises:
            ConfigError: naming the key.
        """
        if not TIME.fullmatch(self.time):
            raise ConfigError("`slurm.time` is no time", got=self.time, expected="D-HH:MM:SS, HH:MM:SS or minutes")
        if self.memory is not None and not MEMORY.fullmatch(self.memory):
            raise ConfigError("`slurm.memory` is no size", got=self.memory, expected="e.g. 64G, or null")
        for key, minimum in (("cpus_per_task", 1), ("warning", 10)):
            if getattr(self, key) < minimum:
                raise ConfigError(f"`slurm.{key}` is too small", got=getattr(self, key), expected=f"{minimum} or more")
        for name in self.environment:
            if not VARIABLE.fullmatch(name):
                raise ConfigError("`slurm.environment` names no variable", got=name, expected="letters, digits, _")
        for option in self.options:
            if not option.startswith("-"):
                raise ConfigError("`slurm.options` holds no option of sbatch", got=option, expected="e.g. --exclusive")
        if self.binds and not self.container:
            raise ConfigError("`slurm.binds` needs a container", do="set `slurm.container`, or leave `binds` out")
