"""The batch script of an experiment: `template.sh`, filled in."""

from __future__ import annotations

import shlex
import string
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from dglcell.cluster.slurm_config import ANY
from dglcell.cluster.sweep import Sweep
from dglcell.config import Config


class Template(string.Template):
    """Text with places like ``@name``: `$` is the shell's."""

    delimiter = "@"


def render(config: Config, file: Path, overrides: Sequence[str] = (), sweep: Sweep | None = None) -> str:
    """A script for ``sbatch``: one task per device, started by one ``srun``.

    Args:
        config: the experiment, with ``overrides`` applied.
        file: its file, as the job will find it from the folder it is submitted in.
        overrides: passed on to ``dglcell train``.
        sweep: makes it a job array.
    """
    members = (sweep or Sweep()).members(config.experiment.name)
    lines = [*surroundings(config), ""]
    words = [launcher(config), "dglcell train", shlex.quote(str(file)), shlex.join(overrides)]
    if len(members) > 1:
        cases = [f"{task}) member=({shlex.join(member)}) ;;" for task, member in enumerate(members)]
        lines += ["case $SLURM_ARRAY_TASK_ID in", *cases, "esac", ""]
        words.append('"${member[@]}"')
    else:
        words.append(shlex.join(members[0]))
    template = Template(files("dglcell.cluster").joinpath("template.sh").read_text())
    return template.substitute(
        description=" ".join((config.experiment.description or config.experiment.name).split()),
        file=shlex.quote(str(file)),
        logs=shlex.quote(config.slurm.logs),
        directives="".join(f"#SBATCH {option}\n" for option in directives(config, len(members))),
        surroundings="\n".join(lines),
        command=" ".join(filter(None, words)),
    )


def job_name(config: Config) -> str:
    """The experiment's name as one word: it is part of the output file's name."""
    return config.experiment.name.replace("/", ".")


def resources(config: Config) -> str:
    """What one job asks for, in words."""
    slurm, trainer = config.slurm, config.trainer
    parts = [
        f"nodes: {trainer.num_nodes}",
        f"tasks a node: {trainer.devices}",
        f"CPUs a task: {slurm.cpus_per_task}",
        f"GPUs a node: {trainer.devices} ({slurm.gpu or ANY})" if wants_gpus(config) else "no GPUs",
        f"memory a node: {slurm.memory or 'default'}",
        f"time: {slurm.time}",
        f"partition: {slurm.partition or 'default'}",
    ]
    return ", ".join(parts)


def wants_gpus(config: Config) -> bool:
    """Whether its devices are GPUs."""
    accelerator = config.trainer.accelerator
    return accelerator == "gpu" or (accelerator == "auto" and config.slurm.gpu is not None)


def directives(config: Config, members: int) -> Iterator[str]:
    """Options of ``sbatch``, one a line."""
    slurm, trainer = config.slurm, config.trainer
    yield f"--job-name={job_name(config)}"
    for option, value in (("partition", slurm.partition), ("account", slurm.account), ("qos", slurm.qos)):
        if value:
            yield f"--{option}={value}"
    yield f"--nodes={trainer.num_nodes}"
    yield f"--ntasks-per-node={trainer.devices}"
    if wants_gpus(config):
        yield f"--gpus-per-node={f'{slurm.gpu}:' if slurm.gpu not in (None, ANY) else ''}{trainer.devices}"
    yield f"--cpus-per-task={slurm.cpus_per_task}"
    if slurm.memory:
        yield f"--mem={slurm.memory}"
    yield f"--time={slurm.time}"
    if members > 1:
        yield f"--array=0-{members - 1}"
    # The folder is made by `dglcell job submit`; SLURM itself makes none.
    yield f"--output={slurm.logs}/%x-{'%A_%a' if members > 1 else '%j'}.out"
    yield "--open-mode=append"
    if slurm.requeue:
        yield "--requeue"
        yield f"--signal=USR1@{slurm.warning}"
    else:
        yield "--no-requeue"
    if slurm.mail:
        yield f"--mail-user={slurm.mail}"
        yield f"--mail-type={slurm.mail_type}"
    yield from slurm.options


def surroundings(config: Config) -> Iterator[str]:
    """Shell lines before the command."""
    slurm = config.slurm
    if slurm.modules:
        yield f"module load {shlex.join(slurm.modules)}"
    yield from slurm.setup
    # One thread per core that the task has been given; libraries would take the whole node's.
    yield "export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}"
    for name, value in slurm.environment.items():
        yield f"export {name}={shlex.quote(value)}"


def launcher(config: Config) -> str:
    """What stands before ``dglcell``."""
    slurm = config.slurm
    # srun does not take the CPUs per task over from sbatch since SLURM 22.05.
    srun = "srun --cpus-per-task=${SLURM_CPUS_PER_TASK:-1} --kill-on-bad-exit=1"
    if not slurm.container:
        return srun
    binds = " ".join(f"--bind {shlex.quote(folder)}" for folder in slurm.binds)
    return " ".join(filter(None, [srun, slurm.container_command, binds, shlex.quote(slurm.container)]))
