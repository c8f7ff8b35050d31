"""Experiments as jobs of SLURM: batch scripts, arrays of seeds and values, and talking to the scheduler."""

from __future__ import annotations

import glob
import itertools
import math
import re
import shlex
import shutil
import string
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from dglcell.config import ANY, Config
from dglcell.config_io import hide_override
from dglcell.config_values import HIDDEN, check_one_line
from dglcell.errors import ConfigError, DataError, DglcellError, MissingDependencyError

# Job arrays: one experiment with several seeds and values of keys.


OWN = ("seed", "experiment.name")
"""Keys that members are told by themselves."""

SEED = re.compile(r"[0-9]{1,10}")

MOST_MEMBERS = 10_000
"""Of a job array; SLURM itself takes 1,000 where nothing else is configured."""

LONGEST = 200
"""Letters of a member's name, at most: file systems take 255."""


@dataclass(frozen=True)
class Sweep:
    """The members of a job array: every combination of values, each with every seed.

    Attributes:
        seeds: of each combination; the experiment's own where empty.
        values: dotted key → values, as written on a command line.
        split_seeds: whether a member's seed is also `split.seed`, so that its strains are divided anew.
    """

    seeds: tuple[int, ...] = ()
    values: tuple[tuple[str, tuple[str, ...]], ...] = ()
    split_seeds: bool = False

    @classmethod
    def parse(cls, seeds: str | None, values: Sequence[str], split_seeds: bool = False) -> Sweep:
        """Read a command line's options.

        Args:
            seeds: e.g. ``0-4`` or ``0,3,7``.
            values: e.g. ``optimizer.lr=1e-3,1e-4`` or ``cell.derived=[isoenzyme],[shares_complex,isoenzyme]``.
            split_seeds: see ``Sweep``.

        Raises:
            ConfigError: they are not of these forms, a value stands twice, or there is no seed for the splits.
        """
        if split_seeds and not seeds:
            raise ConfigError("`--split-seeds` needs seeds", do="give `--seeds`, e.g. --seeds 0-4")
        keys = tuple(_values(value) for value in values)
        swept = [key for key, _ in keys]
        for key in swept:
            if key in OWN or key.startswith("slurm.environment") or (split_seeds and key == "split.seed"):
                raise ConfigError("`--sweep` cannot take this key", got=key, do="see `--seeds` and `--split-seeds`")
            if swept.count(key) > 1:
                raise ConfigError("`--sweep` names a key twice", got=key, do="put its values into one list")
        return cls(tuple(_seeds(seeds)) if seeds else (), keys, split_seeds)

    def members(self, experiment: str) -> list[list[str]]:
        """Overrides of every member, the array's task 0 first.

        Members with other values are other experiments: their names carry the values, so that their run directories
        differ.

        Raises:
            ConfigError: two members would have one name, or a name is too long.
        """
        size = math.prod(len(values) for _, values in self.values) * max(1, len(self.seeds))
        if size > MOST_MEMBERS:
            raise ConfigError(
                "a job array would have too many members", got=f"{size:,}", expected=f"{MOST_MEMBERS:,} or fewer"
            )
        chosen = list(itertools.product(*([f"{key}={value}" for value in values] for key, values in self.values)))
        names = [_name(words) for words in chosen]
        for name, times in Counter(names).items():
            if times > 1 or len(name) > LONGEST:
                what = "is too long" if len(name) > LONGEST else "stands for several members"
                raise ConfigError(
                    f"the name of a sweep's member {what}", got=name, do="submit these values one by one, with names"
                )
        return [
            list(self._member(f"{experiment}/{name}", list(words), seed))
            for name, words in zip(names, chosen, strict=True)
            for seed in self.seeds or (None,)
        ]

    def _member(self, name: str, chosen: list[str], seed: int | None) -> Iterator[str]:
        yield from chosen
        if chosen:
            yield f"experiment.name={name}"
        if seed is not None:
            yield f"seed={seed}"
            if self.split_seeds:
                yield f"split.seed={seed}"


def _name(words: Sequence[str]) -> str:
    """Of a folder: what is more than a word becomes a dash."""
    return "_".join(re.sub(r"[^\w.=+-]+", "-", word).strip("-") for word in words)


def _seeds(text: str) -> list[int]:
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = [first, last] if dash else [first, first]
        numbers = [int(end) for end in ends if SEED.fullmatch(end)]
        if len(numbers) < 2 or not numbers[0] <= numbers[1] < numbers[0] + MOST_MEMBERS:
            raise ConfigError(
                "`--seeds` is no list of seeds",
                got=text,
                expected="e.g. 0-4 or 0,3,7",
                do=f"a job array has at most {MOST_MEMBERS:,} members",
            )
        seeds += range(numbers[0], numbers[1] + 1)
    if len(set(seeds)) < len(seeds):
        raise ConfigError("`--seeds` names a seed twice", got=text)
    return seeds


def _values(text: str) -> tuple[str, tuple[str, ...]]:
    key, equals, values = text.partition("=")
    chosen = tuple(value.strip() for value in _split(values))
    if not (key and equals and all(chosen)):
        raise ConfigError("`--sweep` is not of the form key=value,value", got=text, do="e.g. optimizer.lr=1e-3,1e-4")
    if len(set(chosen)) < len(chosen):
        raise ConfigError("`--sweep` names a value twice", got=text)
    return key, chosen


def _split(text: str) -> list[str]:
    """At commas that stand in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


# The batch script of an experiment: `slurm.sh`, filled in.


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

    Raises:
        ConfigError: the file or an override has a line break, or the value of a variable is hidden.
    """
    # Training needs none of them: the script exports the variables itself.
    overrides = [hide_override(word) for word in overrides]
    for word in (str(file), *overrides):
        check_one_line(word, "the experiment's file and overrides")
    members = (sweep or Sweep()).members(config.experiment.name)
    lines = [*surroundings(config), ""]
    words = [launcher(config), "dglcell train", shlex.quote(str(file)), shlex.join(overrides)]
    if len(members) > 1:
        cases = [f"{task}) member=({shlex.join(member)}) ;;" for task, member in enumerate(members)]
        lines += ["case $SLURM_ARRAY_TASK_ID in", *cases, "esac", ""]
        words.append('"${member[@]}"')
    else:
        words.append(shlex.join(members[0]))
    template = Template(files("dglcell").joinpath("slurm.sh").read_text(encoding="utf-8"))
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
    """Options of ``sbatch``, one a line; what a value says is one word."""
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
    """As one word for sbatch, which unlike a shell takes a backslash in quotes for an escape."""
    return shlex.quote(value).replace("\\", "\\\\")


def surroundings(config: Config) -> Iterator[str]:
    """Shell lines before the command."""
    slurm = config.slurm
    if slurm.modules:
        yield f"module load {shlex.join(slurm.modules)}"
    yield from slurm.setup
    # One thread per core that the task has been given; libraries would take the whole node's.
    yield "export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}"
    for name, value in slurm.environment.items():
        if value == HIDDEN:
            raise ConfigError(
                f"the value of `slurm.environment.{name}` is not in this configuration",
                got=f"'{HIDDEN}', which a run writes in place of it",
                do=f"give it: `slurm.environment.{name}=VALUE`, or submit the experiment's own file",
            )
        yield f"export {name}={shlex.quote(value)}"


def launcher(config: Config) -> str:
    """What stands before ``dglcell``."""
    slurm = config.slurm
    # srun does not take the CPUs per task over from sbatch since SLURM 22.05.
    srun = "srun --cpus-per-task=${SLURM_CPUS_PER_TASK:-1} --kill-on-bad-exit=1"
    if not slurm.container:
        return srun
    binds = " ".join(f"--bind {shlex.quote(folder)}" for folder in slurm.binds)
    command = shlex.join(shlex.split(slurm.container_command))
    return " ".join(filter(None, [srun, command, binds, shlex.quote(slurm.container)]))


# Talking to SLURM: try a script, submit it, ask how jobs are.


QUEUE_FORMAT = "%i|%T|%M|%l|%D|%R|%j"
"""Number (with the array's task), state, times, nodes, where; the name is last, as it may hold anything."""

NO_ANSWER = (
    *("ontact slurm controller", "onnection refused", "onnection timed out", "timed out on send/recv"),
    *("onfiguration source", "Unable to process configuration", "rotocol authentication", "o route to host"),
)
"""How SLURM's commands say that the controller is not there, or that they do not know where it is."""

PATIENCE = 120
"""Seconds for SLURM's commands to answer; they try again by themselves."""


@dataclass(frozen=True)
class Job:
    """A line of the queue.

    Attributes:
        number: of the job, with the array's task where it is one, e.g. ``17_3``.
        name: the experiment.
        state: as SLURM calls it, e.g. ``RUNNING``.
        used: time since it started.
        limit: time it may take.
        nodes: how many.
        where: node names, or why it waits.
    """

    number: str
    name: str
    state: str
    used: str
    limit: str
    nodes: str
    where: str


def try_script(script: str, folder: Path) -> str:
    """Ask SLURM whether and when it would start a script, without submitting it.

    Args:
        script: as ``render`` made it.
        folder: that it would be submitted in.

    Returns:
        SLURM's answer.

    Raises:
        ConfigError: SLURM would refuse it; with SLURM's own words.
        DglcellError: SLURM does not answer.
    """
    done = _call(["sbatch", "--test-only"], folder, script)
    answer = (done.stderr or done.stdout).strip()
    if done.returncode:
        raise ConfigError("SLURM would refuse this job", got=answer, do="mend the experiment's `slurm` section")
    return answer.removeprefix("sbatch: ")


def submit_script(script: str, folder: Path, logs: str) -> str:
    """Submit a script.

    Args:
        script: as ``render`` made it.
        folder: the job's working folder.
        logs: folder of output files below it; SLURM loses the output of a job whose folder is missing.

    Returns:
        the job's number.

    Raises:
        ConfigError: SLURM refuses it.
    """
    (folder / logs).mkdir(parents=True, exist_ok=True)
    done = _call(["sbatch", "--parsable"], folder, script)
    if done.returncode:
        raise ConfigError("SLURM refuses this job", got=done.stderr.strip(), do="see `dglcell job check`")
    return done.stdout.strip().split(";")[0]


def queue(name: str | None = None) -> list[Job]:
    """The user's jobs, of one experiment or all.

    Raises:
        DglcellError: SLURM does not answer.
    """
    done = _call(["squeue", "--me", "--array", "--noheader", f"--format={QUEUE_FORMAT}"], Path.cwd())
    if done.returncode:
        raise DglcellError("SLURM does not answer", got=done.stderr.strip())
    jobs = [_job(line) for line in done.stdout.splitlines() if line.count("|") >= QUEUE_FORMAT.count("|")]
    return [job for job in jobs if name is None or job.name == name]


def cancel(jobs: Sequence[Job]) -> None:
    """Cancel jobs; nothing where there are none.

    Raises:
        DglcellError: SLURM does not answer, or does not do it.
    """
    if jobs:
        done = _call(["scancel", *(job.number for job in jobs)], Path.cwd())
        if done.returncode:
            raise DglcellError("SLURM does not cancel these jobs", got=done.stderr.strip())


def log_files(config: Config, folder: Path) -> list[Path]:
    """Output files of an experiment's jobs, the newest last.

    Raises:
        DataError: there is none.
    """
    name = glob.escape(job_name(config))
    found = sorted((folder / config.slurm.logs).glob(f"{name}-[0-9]*.out"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise DataError(
            f"no output of '{job_name(config)}' is in '{folder / config.slurm.logs}'",
            do="work in the folder that the job was submitted in; see `dglcell job status`",
        )
    return found


def _job(line: str) -> Job:
    number, state, used, limit, nodes, where, name = line.split("|", QUEUE_FORMAT.count("|"))
    return Job(number.strip(), name, state, used.strip(), limit.strip(), nodes, where)


def _call(command: list[str], folder: Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    if shutil.which(command[0]) is None:
        raise MissingDependencyError(
            f"`{command[0]}` is not on this machine", do="run this on a login node of the cluster"
        )
    try:
        done = subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise DglcellError("SLURM does not answer", got=f"no answer in {PATIENCE} s", do="try again later") from None
    if done.returncode and any(sign in done.stderr + done.stdout for sign in NO_ANSWER):
        answer = (done.stderr or done.stdout).strip().splitlines()[-1]
        raise DglcellError("SLURM does not answer", got=answer, do="try again later, or on a login node")
    return done
