"""Write experiments as batch scripts for SLURM, with an array of seeds, and submit them."""

from __future__ import annotations

import re
import shlex
import shutil
import string
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from dglcell.checks import HIDDEN, check_one_line
from dglcell.config.experiment import ANY, AUTO, Config
from dglcell.config.read import hide_override
from dglcell.errors import ConfigError, DglcellError, MissingDependencyError, shorten

MOST_MEMBERS = 10_000  # of a job array; SLURM itself takes 1,000 by default


def seeds_of(text: str) -> list[int]:
    """Return the seeds of a list such as ``0-4`` or ``0,3,7``, each of which is a member of a job array."""
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last < first + MOST_MEMBERS - len(seeds):
            do = f"a job array has at most {MOST_MEMBERS:,} members"
            raise ConfigError("`--seeds` is no list of seeds", got=text, expected="e.g. 0-4 or 0,3,7", do=do)
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds):
        raise ConfigError("`--seeds` names a seed twice", got=text, do="name each seed once")
    return seeds


def members_of(seeds: Sequence[int], split_seeds: bool) -> list[list[str]]:
    """Return the overrides of every member of a job array; without seeds there is one, which has none."""
    keys = ("seed", "split.seed") if split_seeds else ("seed",)
    return [[f"{key}={seed}" for key in keys] for seed in seeds] or [[]]


def render(config: Config, file: Path, overrides: Sequence[str] = (), members: Sequence[Sequence[str]] = ((),)) -> str:
    """Return a script for ``sbatch``, which runs one task per device and starts them with one ``srun``.

    The overrides are those that ``config`` has, and ``file`` is relative to the folder in which the job is submitted.
    Each of several members is a task of a job array, with its own overrides.
    """
    # Training needs no variables: the script exports them itself.
    overrides = [hide_override(word) for word in overrides]
    for word in (str(file), *overrides):
        check_one_line(word, "the experiment's file and overrides")
    lines, last = [], shlex.join(members[0])
    if len(members) > 1:
        cases = [f"{task}) member=({shlex.join(member)}) ;;" for task, member in enumerate(members)]
        lines, last = ["case $SLURM_ARRAY_TASK_ID in", *cases, "esac", ""], '"${member[@]}"'
    words = [launcher(config), "dglcell", "train", shlex.quote(str(file)), shlex.join(overrides), last]
    config = with_limits(config)
    template = Template(files("dglcell.cluster").joinpath("slurm.sh").read_text(encoding="utf-8"))
    return template.substitute(
        description=" ".join((config.experiment.description or config.experiment.name).split()),
        file=shlex.quote(str(file)),
        logs=shlex.quote(config.slurm.logs),
        directives="".join(f"#SBATCH {option}\n" for option in directives(config, len(members))),
        environment="" if config.slurm.setup or config.slurm.container else ENVIRONMENT,
        surroundings="\n".join([*surroundings(config), ""]),
        command="\n".join([*lines, " ".join(filter(None, words))]),
    )


class Template(string.Template):
    """A template has places like ``@name``, because `$` belongs to the shell."""

    delimiter = "@"


ENVIRONMENT = """\
# It runs in the environment of the shell that submits it, which has to be active there; or say in `slurm.setup` how to
# activate it, e.g. slurm.setup='[source .venv/bin/activate]'.
"""


def with_limits(config: Config) -> Config:
    """Return the experiment with 24 hours and 32 GB in place of `auto`."""
    given: dict[str, Any] = {"time": "24:00:00", "memory": "32G"}
    wanted = {name: of for name, of in given.items() if getattr(config.slurm, name) == AUTO}
    return replace(config, slurm=replace(config.slurm, **wanted))


def job_name(config: Config, seeds: Sequence[int] = ()) -> str:
    """Return the experiment's name as one word, because it is part of the output file's name, with seeds if given."""
    of_seeds = f".seed-{','.join(map(str, seeds))}" if seeds else ""
    return config.experiment.name.replace("/", ".") + of_seeds


def resources(config: Config) -> str:
    """Describe the resources of one job in words; its time and memory are given."""
    slurm, trainer = config.slurm, config.trainer
    gpus = f"GPUs a node: {trainer.devices} ({slurm.gpu or ANY})" if wants_gpus(config) else "no GPUs"
    return (
        f"nodes: {trainer.num_nodes}, tasks a node: {trainer.devices}, CPUs a task: {slurm.cpus_per_task}, {gpus}, "
        f"memory a node: {slurm.memory or 'default'}, time: {slurm.time}, partition: {slurm.partition or 'default'}"
    )


def wants_gpus(config: Config) -> bool:
    """Return whether the experiment's devices are GPUs."""
    accelerator = config.trainer.accelerator
    return accelerator in ("gpu", "cuda") or (accelerator == "auto" and config.slurm.gpu is not None)


def directives(config: Config, members: int) -> Iterator[str]:
    """Return the options of ``sbatch``, one a line; each value is written as one word."""
    slurm, trainer = config.slurm, config.trainer
    yield f"--job-name={_quoted(job_name(config))}"
    for option, value in (("partition", slurm.partition), ("account", slurm.account), ("qos", slurm.qos)):
        if value:
            yield f"--{option}={_quoted(value)}"
    yield f"--nodes={trainer.num_nodes}"
    yield f"--ntasks-per-node={trainer.devices}"
    if wants_gpus(config):
        kind = "" if slurm.gpu in (None, ANY) else f"{slurm.gpu}:"
        yield f"--gpus-per-node={_quoted(f'{kind}{trainer.devices}')}"
    yield f"--cpus-per-task={slurm.cpus_per_task}"
    if slurm.memory:
        yield f"--mem={slurm.memory}"
    yield f"--time={slurm.time}"
    if members > 1:
        at_once = "" if slurm.array_limit is None else f"%{slurm.array_limit}"
        yield f"--array=0-{members - 1}{at_once}"
    # The folder is made by `dglcell job submit`; SLURM itself makes none.
    pattern = "%x-%A_%a.out" if members > 1 else "%x-%j.out"
    yield f"--output={_quoted(f'{slurm.logs}/{pattern}')}"
    yield "--open-mode=append"
    if slurm.requeue:
        yield "--requeue"
        yield f"--signal=USR1@{slurm.warning}"
    else:
        yield "--no-requeue"
    if slurm.mail:
        yield f"--mail-user={_quoted(slurm.mail)}"
        yield f"--mail-type={_quoted(slurm.mail_type)}"
    yield from slurm.options


def _quoted(value: str) -> str:
    """Quote a value as one word for sbatch, which unlike a shell takes a backslash in quotes for an escape."""
    return shlex.quote(value).replace("\\", "\\\\")


def surroundings(config: Config) -> Iterator[str]:
    """Return the shell lines before the command."""
    slurm = config.slurm
    if slurm.modules:
        yield f"module load {shlex.join(slurm.modules)}"
    yield from slurm.setup
    # Use one thread per core of the task; libraries would use all cores of the node.
    yield "export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}"
    for name, value in slurm.environment.items():
        if value == HIDDEN:
            what = f"the value of `slurm.environment.{name}` is not in this configuration"
            do = f"give it: `slurm.environment.{name}=VALUE`, or submit the experiment's own file"
            raise ConfigError(what, got=f"'{HIDDEN}', which a run writes in place of it", do=do)
        yield f"export {name}={shlex.quote(value)}"


def launcher(config: Config) -> str:
    """Return the words before ``dglcell`` in the command, which may run in a container."""
    slurm = config.slurm
    # srun does not take the CPUs per task over from sbatch since SLURM 22.05.
    words = ["srun --cpus-per-task=${SLURM_CPUS_PER_TASK:-1} --kill-on-bad-exit=1"]
    if slurm.container:
        binds = [f"--bind {shlex.quote(folder)}" for folder in slurm.binds]
        words += [shlex.join(shlex.split(slurm.container_command)), *binds, shlex.quote(slurm.container)]
    return " ".join(words)


# SLURM's commands: what is queued under the name of a script is not submitted again.

# With these texts they say that the controller is not there, or that they cannot find it.
NO_ANSWER = (
    *("ontact slurm controller", "onnection refused", "onnection timed out", "timed out on send/recv"),
    *("onfiguration source", "Unable to process configuration", "rotocol authentication", "o route to host"),
)


def submit_script(script: str, folder: Path, logs: str, name: str) -> str:
    """Submit a script under a name, by which `queued` finds it, and return the job's number."""
    (folder / logs).mkdir(parents=True, exist_ok=True)  # SLURM loses the output of a job whose folder is missing
    done = _call(["sbatch", "--parsable", f"--job-name={name}"], folder, script)
    if done.returncode:
        raise ConfigError("SLURM refuses this job", got=done.stderr.strip(), do="mend the experiment's `slurm` section")
    number = done.stdout.strip().split(";")[0]
    if not re.fullmatch("[0-9]+", number):
        what = "SLURM's answer is not the number of a job, which may be queued or not"
        got = shorten(done.stdout.strip(), 200) or "nothing"
        raise DglcellError(what, got=got, do="give the same command again: it looks for the job first")
    return number


def queued(folder: Path) -> dict[str, str]:
    """Return name → number of the user's jobs that were submitted in a folder and are queued or running."""
    done = _call(["squeue", "--me", "--noheader", "--format=%F|%Z|%j"], folder)
    if done.returncode:
        raise DglcellError("SLURM does not answer", got=done.stderr.strip(), do="try again when `squeue --me` works")
    jobs = [line.split("|", 2) for line in done.stdout.splitlines() if line.count("|") >= 2]
    return {name: number.strip() for number, place, name in jobs if Path(place.strip()) == folder}


def _call(command: list[str], folder: Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    if shutil.which(command[0]) is None:
        do = "run this on a login node of the cluster"
        raise MissingDependencyError(f"`{command[0]}` is not on this machine", do=do)
    try:  # within two minutes, in which SLURM's commands try again by themselves
        done = subprocess.run(
            command, cwd=folder, input=text, capture_output=True, text=True, timeout=120, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise DglcellError("SLURM does not answer", got="no answer in 120 s", do="try again later") from None
    if done.returncode and any(sign in done.stderr + done.stdout for sign in NO_ANSWER):
        answer = (done.stderr or done.stdout).strip().splitlines()[-1]
        raise DglcellError("SLURM does not answer", got=answer, do="try again later, or on a login node")
    return done
