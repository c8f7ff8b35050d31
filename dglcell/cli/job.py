"""Run ``dglcell job``, which runs an experiment as a job of SLURM."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dglcell.cli.arguments import CONFIGURATION, OVERWRITE, argument, check_outputs, verb
from dglcell.errors import ConfigError, count

if TYPE_CHECKING:
    from dglcell.config.experiment import Config

_SEEDS = "e.g. 0-4 or 0,3,7: a member of a job array each"
_SPLIT_SEEDS = "divide the strains anew for every seed: split.seed is the seed too"
ARRAY = (
    *CONFIGURATION,
    argument("--seeds", metavar="LIST", help=_SEEDS),
    argument("--split-seeds", action="store_true", help=_SPLIT_SEEDS),
)
"""These are an experiment, and the options that make a job array."""


class Job(NamedTuple):
    """A job runs an experiment with SLURM, as one run or an array of runs."""

    config: Config
    name: str  #: under which it is queued
    runs: list[Path]  #: run directory of each member of the array
    script: str


def make_job(options: argparse.Namespace, file: Path) -> Job:
    """Read an experiment and check every member of its array."""
    from dglcell.cluster import job_name, members_of, render, seeds_of, with_limits
    from dglcell.config.read import load_config

    seeds = seeds_of(options.seeds) if options.seeds else []
    if options.split_seeds and not seeds:
        raise ConfigError("`--split-seeds` needs seeds", do="give `--seeds`, e.g. --seeds 0-4")
    members, overrides = members_of(seeds, options.split_seeds), options.overrides
    config = load_config(file, overrides)
    runs = [(load_config(file, [*overrides, *member]) if member else config).run_directory for member in members]
    name = job_name(config, seeds or [config.seed])
    return Job(with_limits(config), name, runs, render(config, file, overrides, members))


_OUTPUT = "write it here; into a folder (FOLDER/) as FOLDER/EXPERIMENT.sh"


@verb("job render", *ARRAY, argument("--output", "-o", metavar="PATH", help=_OUTPUT), OVERWRITE)
def render(options: argparse.Namespace) -> None:
    """Print the batch script of an experiment.

    Resources are `trainer.devices`, `trainer.num_nodes` and the section `slurm`. With --output a folder stands for all
    numbered experiments below it, those in folders whose names begin with a digit.
    """
    from dglcell.config.read import experiment_file
    from dglcell.files.atomic import atomic_file

    files, whole = [], options.config.is_dir()
    if not whole:
        files = [experiment_file(options.config)]
    elif options.output is not None:
        files = [file for file in sorted(options.config.rglob("*.yaml")) if file.resolve().parent.name[0].isdigit()]
    if not files:
        expected = "an experiment; with --output also a folder that has folders like 101-collins2007"
        raise ConfigError(f"no experiment can be read from '{options.config}'", got="a folder", expected=expected)
    jobs = [make_job(options, file) for file in files]
    if options.output is None:
        print(jobs[0].script, end="")
        return
    output = Path(options.output)
    into_folder = whole or output.is_dir() or options.output.endswith("/")
    paths = [output / f"{job.config.experiment.name}.sh" if into_folder else output for job in jobs]
    same = [path.is_file() and path.read_bytes() == job.script.encode() for job, path in zip(jobs, paths, strict=True)]
    check_outputs(options, *(path for path, stays in zip(paths, same, strict=True) if not stays))
    for job, path in zip(jobs, paths, strict=True):
        with atomic_file(path) as partial:
            partial.touch(0o600 if job.config.slurm.environment else 0o666)  # values of variables may be tokens
            partial.write_text(job.script, encoding="utf-8")
    print(f"{count(len(paths), 'script')} written to {output}")


@verb("job submit", *ARRAY)
def submit(options: argparse.Namespace) -> None:
    """Submit an experiment to SLURM, unless its job is queued or running already."""
    from dglcell.cluster import queued, resources, submit_script
    from dglcell.config.read import experiment_file
    from dglcell.training.prepare import store_path

    file = experiment_file(options.config)
    job = make_job(options, file)
    logs, store = job.config.slurm.logs, store_path(job.config)
    print(f"{file}: valid; {count(len(job.runs), 'job')}\n  {resources(job.config)}")
    if not store.exists():  # each of the jobs would begin by building it
        print(f"  store {store} is not there yet; built once beforehand: dglcell data build {file}", flush=True)
    there = queued(Path.cwd())
    if job.name in there:
        print(f"job {there[job.name]} is queued or running already: {job.name}")
        return
    number = submit_script(job.script, Path.cwd(), logs, job.name)
    runs = job.runs[0] if len(job.runs) == 1 else job.runs[0].parent
    print(f"job {number} submitted; output goes to {logs}/, the run to {runs}")
