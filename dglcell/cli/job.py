"""Run ``dglcell job``, which runs an experiment as a job of SLURM."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dglcell.cli.arguments import CONFIGURATION, OVERWRITE, argument, check_outputs, keys_of, verb
from dglcell.errors import ConfigError, DglcellError, count

if TYPE_CHECKING:
    from dglcell.config.experiment import Config

_SEEDS = "e.g. 0-4 or 0,3,7: a member of a job array each"
_SPLIT_SEEDS = "divide the strains anew for every seed: split.seed is the seed too"
_SWEEP = "every value with every seed is a member of a job array, e.g. optimizer.lr=1e-3,1e-4"
_PIPELINE = "build the store in a job before, where it is not there, and compare the runs in a job after them"
ARRAY = (
    *CONFIGURATION,
    argument("--seeds", metavar="LIST", help=_SEEDS),
    argument("--split-seeds", action="store_true", help=_SPLIT_SEEDS),
    argument("--sweep", action="append", default=[], metavar="key=a,b", help=_SWEEP),
)
"""These are an experiment, and the options that make a job array."""


class Step(NamedTuple):
    """A script for ``sbatch``, which is queued under a name, and starts when the step before it has succeeded."""

    name: str
    script: str
    said: str  #: what its submission is said to do


class Job(NamedTuple):
    """A job runs an experiment with SLURM, as one run or an array of runs."""

    config: Config
    runs: list[Path]  #: run directory of each member of the array
    main: Step  #: the runs themselves
    steps: list[Step]  #: with those before and after it


def experiments(path: Path) -> list[Path]:
    """Return the file itself, or the numbered experiments of a folder."""
    from dglcell.config.read import PACKAGED, experiment_file

    packaged = PACKAGED / str(path).removeprefix("conf").lstrip("/")
    path = packaged if not path.exists() and packaged.is_dir() else path
    if not path.is_dir():
        return [experiment_file(path)]
    found = [file for file in sorted(path.rglob("*.yaml")) if file.resolve().parent.name[0].isdigit()]
    if not found:
        expected = "files in folders like conf/101-collins2007"
        raise ConfigError(f"no numbered experiment is in '{path}'", expected=expected)
    return found


def make_job(options: argparse.Namespace, file: Path, *, pipeline: bool = False) -> Job:
    """Read an experiment and check every member of its array; a pipeline also builds the store and compares runs."""
    from dglcell.cluster import Sweep, job_name, name_of_runs, render_build, render_comparison, with_limits
    from dglcell.cluster import render as render_runs
    from dglcell.config.read import load_config

    sweep = Sweep.parse(options.seeds, options.sweep, options.split_seeds)
    overrides = keys_of(options)
    config = load_config(file, overrides)
    members = sweep.members(config.experiment.name)
    runs = [(load_config(file, [*overrides, *member]) if member else config).run_directory for member in members]
    config = with_limits(config)
    folder, name = config.run_directory.parent, job_name(config)
    said = f"output goes to {config.slurm.logs}/, the run to {runs[0] if len(runs) == 1 else folder}"
    script = render_runs(config, file, overrides, sweep)
    main = Step(name_of_runs(name, sweep, config.seed), script, said)
    steps = [main]
    if pipeline:
        if len(runs) < 2:
            raise ConfigError("`--pipeline` compares runs, and this is one run", do="give `--seeds`, e.g. --seeds 0-4")
        from dglcell.training.prepare import store_path

        store, page = store_path(config), folder / "comparison.html"
        if not store.exists():
            script = render_build(config, file, overrides, store)
            steps.insert(0, Step(f"build.{store.name}", script, "it builds the store"))
        name = name_of_runs(f"{name}.report", sweep, config.seed)
        steps.append(Step(name, render_comparison(config, file, runs, page), f"it compares the runs in {page}"))
    return Job(config, runs, main, steps)


_OUTPUT = "write it here; into a folder (FOLDER/) as FOLDER/EXPERIMENT.sh"


@verb("job render", *ARRAY, argument("--output", "-o", metavar="PATH", help=_OUTPUT), OVERWRITE)
def render(options: argparse.Namespace) -> None:
    """Print the batch script of an experiment.

    Resources are `trainer.devices`, `trainer.num_nodes` and the section `slurm`. A folder stands for all numbered
    experiments below it, those in folders whose names begin with a digit.
    """
    from dglcell.files.atomic import atomic_file

    files = experiments(options.config)
    if options.output is None:
        if len(files) > 1:
            raise ConfigError(f"'{options.config}' has {len(files)} experiments", do="give a folder with `--output`")
        print(make_job(options, files[0]).main.script, end="")
        return
    output = Path(options.output)
    into_folder = options.config.is_dir() or output.is_dir() or options.output.endswith("/")
    jobs = [make_job(options, file) for file in files]
    paths = [output / f"{job.config.experiment.name}.sh" if into_folder else output for job in jobs]
    check_outputs(options, *(path for job, path in zip(jobs, paths, strict=True) if not _is_up_to_date(path, job)))
    for job, path in zip(jobs, paths, strict=True):
        # Values of variables may be tokens.
        private = bool(job.config.slurm.environment)
        is_open = private and path.exists() and path.stat().st_mode & 0o077
        if is_open or not _is_up_to_date(path, job):
            with atomic_file(path) as partial:
                partial.touch(0o600 if private else 0o666)
                partial.write_text(job.main.script, encoding="utf-8")
            print(f"script written to {path}")
    if into_folder:
        print(f"{count(len(files), 'script')} in {output} up to date")


def _is_up_to_date(path: Path, job: Job) -> bool:
    return path.is_file() and path.read_bytes() == job.main.script.encode()


@verb(
    "job submit",
    *ARRAY,
    argument("--pipeline", action="store_true", help=_PIPELINE),
    argument("--dry-run", action="store_true", help="only print what would be submitted"),
)
def submit(options: argparse.Namespace) -> None:
    """Ask SLURM whether it would take a job, then submit it.

    A folder stands for all numbered experiments below it. Nothing is submitted unless SLURM would take everything.
    """
    if options.dry_run:
        for file in experiments(options.config):
            job = make_job(options, file, pipeline=options.pipeline)
            print(f"# {file}: {count(len(job.runs), 'job')}, {', '.join(map(str, job.runs))}")
            print(*(step.script for step in job.steps), sep="\n")
        print("# nothing was submitted")
        return
    from dglcell.cluster import queued, submit_script

    jobs = _check(options)
    there = queued(Path.cwd())
    for job in jobs:
        after: list[str] = []
        for step in job.steps:
            if step.name in there:
                print(f"job {there[step.name]} is queued or running already: {step.name}")
            else:
                logs = job.config.slurm.logs
                there[step.name] = submit_script(step.script, Path.cwd(), logs, step.name, *after)
                print(f"job {there[step.name]} submitted; {step.said}")
            # The next one is cancelled when this one has failed.
            after = [f"--dependency=afterok:{there[step.name]}", "--kill-on-invalid-dep=yes"]


def _check(options: argparse.Namespace) -> list[Job]:
    """Return all jobs after asking SLURM about each of them."""
    from dglcell.cluster import resources, try_script
    from dglcell.training.prepare import store_path

    jobs, files = [], experiments(options.config)
    for file in files:
        try:
            job = make_job(options, file, pipeline=options.pipeline)
            print(f"{file}: valid; {count(len(job.runs), 'job')}\n  {resources(job.config)}", flush=True)
            store = store_path(job.config)
            if not options.pipeline and not store.exists():  # each of the jobs would begin by building it
                said = f"store {store} is not there yet; built once beforehand: dglcell data build {file}"
                print(f"  {said}", flush=True)
            answers = {step.name: try_script(step.script, Path.cwd()) for step in job.steps}
            print(f"  {answers[job.main.name]}", flush=True)
            jobs.append(job)
        except ConfigError as error:
            if len(files) == 1:
                raise
            print(f"{file}: {error}", file=sys.stderr)
    if len(jobs) < len(files):
        what = f"{len(files) - len(jobs)} of {len(files)} experiments would be refused"
        raise DglcellError(what, do="mend them, or submit one by one")
    return jobs
