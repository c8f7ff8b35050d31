"""Experiments as jobs of SLURM: batch scripts, arrays of seeds and values, and what jobs ask for."""

from __future__ import annotations

import itertools
import math
import re
import shlex
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import yaml

from dglcell.checks import HIDDEN, check_one_line
from dglcell.config.experiment import ANY, AUTO, Config
from dglcell.config.read import PACKAGED, hide_override, load_config
from dglcell.errors import ConfigError
from dglcell.runs.directory import RunDirectory
from dglcell.runs.usage import Usage, read_usage

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
    words = [launcher(config), *_command("train", file, overrides)]
    members = _members(config, sweep)
    lines: list[str] = []
    if len(members) > 1:
        cases = [f"{task}) member=({shlex.join(member)}) ;;" for task, member in enumerate(members)]
        lines += ["case $SLURM_ARRAY_TASK_ID in", *cases, "esac", ""]
        words.append('"${member[@]}"')
    else:
        words.append(shlex.join(members[0]))
    return _script(config, file, [*lines, " ".join(filter(None, words))], len(members))


def render_here(config: Config, file: Path, overrides: Sequence[str] = (), sweep: Sweep | None = None) -> str:
    """What ``render`` runs, as a shell script for this machine: without SLURM, members one after the other.

    Raises:
        ConfigError: see ``render``; or the experiment needs several machines.
    """
    if config.trainer.num_nodes > 1:
        raise ConfigError(
            "the experiment needs several machines",
            got=f"`trainer.num_nodes: {config.trainer.num_nodes}`",
            do="submit it with `dglcell job submit`, or set trainer.num_nodes=1",
        )
    words = [*container(config), *_command("train", file, overrides)]
    runs = [" ".join(filter(None, [*words, shlex.join(member)])) for member in _members(config, sweep)]
    runs[-1] = f"exec {runs[-1]}"  # gets the signals that are meant for the whole
    cpus = f"export SLURM_CPUS_PER_TASK={config.slurm.cpus_per_task}"
    return "\n".join(["set -euo pipefail", cpus, *surroundings(config), *runs, ""])


def render_build(config: Config, file: Path, overrides: Sequence[str], store: Path) -> str:
    """A script for ``sbatch`` that builds the experiment's store, unless it has been built meanwhile."""
    words = [f"[ -e {shlex.quote(str(store))} ] ||", launcher(config), *_command("data build", file, overrides)]
    return _script(_on_one_cpu(config), file, [" ".join(filter(None, words))])


def render_comparison(config: Config, file: Path, runs: Sequence[Path], page: Path) -> str:
    """A script for ``sbatch`` that compares finished runs on one page."""
    words = [launcher(config), "dglcell report", shlex.join([*map(str, runs), "--output", str(page)])]
    return _script(_on_one_cpu(config), file, [" ".join(words)])


def _members(config: Config, sweep: Sweep | None) -> list[list[str]]:
    return (sweep or Sweep()).members(config.experiment.name)


def _command(verb: str, file: Path, overrides: Sequence[str]) -> list[str]:
    # Training needs no variables: the script exports them itself.
    overrides = [hide_override(word) for word in overrides]
    for word in (str(file), *overrides):
        check_one_line(word, "the experiment's file and overrides")
    return ["dglcell", verb, shlex.quote(str(file)), shlex.join(overrides)]


def _on_one_cpu(config: Config) -> Config:
    """For steps that need neither a GPU nor several processes."""
    trainer = replace(config.trainer, devices=1, num_nodes=1, accelerator="cpu")
    return replace(config, trainer=trainer)


ENVIRONMENT = """\
# It runs in the environment of the shell that submits it, which has to be active there; or say in `slurm.setup` how to
# activate it, e.g. slurm.setup='[source .venv/bin/activate]'.
"""


def _script(config: Config, file: Path, command: Sequence[str], members: int = 1) -> str:
    config, _ = with_limits(config)
    template = Template(files("dglcell.cluster").joinpath("slurm.sh").read_text(encoding="utf-8"))
    return template.substitute(
        description=" ".join((config.experiment.description or config.experiment.name).split()),
        file=shlex.quote(str(file)),
        logs=shlex.quote(config.slurm.logs),
        directives="".join(f"#SBATCH {option}\n" for option in directives(config, members)),
        environment="" if config.slurm.setup or config.slurm.container else ENVIRONMENT,
        surroundings="\n".join([*surroundings(config), ""]),
        command="\n".join(command),
    )


# What a job asks for.


DEFAULT_TIME, DEFAULT_MEMORY = "24:00:00", "32G"
"""Of `auto`, where nothing was measured."""

LONGEST_RUN = 1e8
"""Seconds, three years: what is said to take longer is damaged."""

SPARE = 1.5
"""How much more than what was measured."""

ELSEWHERE = 4.0
"""How much more time than a run took that this package has a record of: it ran on another machine."""

SHORTEST, SMALLEST = 1800, 4
"""Seconds and GiB that such a run, or one that was only estimated, is given at least: it may first compute its strains,
in several processes."""


@dataclass(frozen=True)
class Limits:
    """What a job asks for.

    Attributes:
        time: as SLURM takes it.
        memory: the same; None where it is not known.
        why: what they follow from.
    """

    time: str
    memory: str | None
    why: str


def with_limits(config: Config, folders: Iterable[Path] = ()) -> tuple[Config, str | None]:
    """The experiment with a time and a memory in place of `auto`.

    Args:
        config: the experiment.
        folders: of runs; those that have finished tell what to ask for, before the records of this package do.

    Returns:
        it, and what was measured, in words; None where nothing was, or nothing is `auto`.
    """
    slurm, said = config.slurm, []
    found = _measured(config, folders) or _recorded(config)
    time, memory = (found.time, found.memory) if found is not None else (None, None)
    if slurm.time == AUTO:
        slurm = replace(slurm, time=time or DEFAULT_TIME)
        said += [f"time {time}"] if time else []
    if slurm.memory == AUTO:
        slurm = replace(slurm, memory=memory or DEFAULT_MEMORY)
        said += [f"memory {memory}"] if memory else []
    about = f"{' and '.join(said)}: {found.why}" if found is not None and said else None
    return replace(config, slurm=slurm), about


def _measured(config: Config, folders: Iterable[Path]) -> Limits | None:
    """Time and memory for what the longest of the finished runs took, on as many of the same devices."""
    found = []
    for path in sorted(path for folder in folders for path in folder.glob("seed-*")):
        usage = read_usage(RunDirectory(path))
        seconds = None if usage is None else _seconds(config, usage)
        if usage is not None and seconds is not None:
            found.append((seconds, path, usage.peak_resident_bytes or 0))
    if not found:
        return None
    seconds, path, _ = max(found)
    gigabytes = _gigabytes(config, max(peak for _, _, peak in found))
    memory = f"{gigabytes}G" if gigabytes else None
    return Limits(job_time(SPARE * seconds + config.slurm.warning), memory, f"{SPARE} times what {path} took")


def _recorded(config: Config) -> Limits | None:
    """The same for the recorded run of an experiment of this package, unless keys make it another experiment."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    records = yaml.load(files("dglcell.cluster").joinpath("usage.yaml").read_text(encoding="utf-8"), Loader=loader)
    if config.experiment.name not in records:
        return None
    usage = Usage(**records[config.experiment.name])
    seconds = _seconds(config, usage)
    if seconds is None or usage.peak_resident_bytes is None:
        return None
    packaged = load_config(PACKAGED / f"{config.experiment.name}.yaml")
    same = all(getattr(packaged, part) == getattr(config, part) for part in ("cell", "model", "loss"))
    if not same or packaged.data != replace(config.data, store=packaged.data.store):
        return None
    gigabytes = max(SMALLEST, _gigabytes(config, usage.peak_resident_bytes))
    took = f"{usage.wall_seconds:,.0f} s and {usage.peak_resident_bytes / 2**30:.1f} GiB"
    time = job_time(max(SHORTEST, ELSEWHERE * seconds + config.slurm.warning))
    return Limits(time, f"{gigabytes}G", f"well above the {took} of the run that the documentation shows")


def _seconds(config: Config, usage: Usage) -> float | None:
    """What a run took, for as many epochs as there are now; None where it had other devices, or is damaged."""
    trainer = config.trainer
    if usage.device.startswith("cuda") != wants_gpus(config) or usage.processes != trainer.devices * trainer.num_nodes:
        return None
    seconds = usage.wall_seconds - usage.seconds + usage.seconds / max(1, usage.epochs) * trainer.epochs
    return seconds if 0 <= seconds < LONGEST_RUN else None


def job_time(seconds: float) -> str:
    """A time as SLURM takes it, in tens of minutes."""
    tens = math.ceil(seconds / 600)
    return f"{tens // 6}:{tens % 6}0:00"


def _gigabytes(config: Config, peak: int) -> int:
    """Of memory a node, for the peak of one process."""
    return math.ceil(SPARE * peak * config.trainer.devices / 2**30)


def job_name(config: Config) -> str:
    """The experiment's name as one word: it is part of the output file's name."""
    return config.experiment.name.replace("/", ".")


def resources(config: Config) -> str:
    """What one job asks for, in words; its time and memory are given."""
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
    # srun does not take the CPUs per task over from sbatch since SLURM 22.05.
    return " ".join(["srun --cpus-per-task=${SLURM_CPUS_PER_TASK:-1} --kill-on-bad-exit=1", *container(config)])


def container(config: Config) -> list[str]:
    """What runs a command in the experiment's container; empty where it has none."""
    slurm = config.slurm
    if not slurm.container:
        return []
    binds = [f"--bind {shlex.quote(folder)}" for folder in slurm.binds]
    return [shlex.join(shlex.split(slurm.container_command)), *binds, shlex.quote(slurm.container)]
