"""Run ``dglcell job``, which runs an experiment as a job of SLURM."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dglcell.cli.arguments import add_overwrite, check_outputs, keys_of
from dglcell.errors import ConfigError, DglcellError, count

if TYPE_CHECKING:
    from dglcell.cluster.scripts import Sweep
    from dglcell.config.experiment import Config

SWEEP_HELP = "every value with every seed is a member of a job array, e.g. optimizer.lr=1e-3,1e-4"
PIPELINE_HELP = "build the store in a job before, where it is not there, and compare the runs in a job after them"
EPILOG = """\
Resources are `trainer.devices`, `trainer.num_nodes` and the section `slurm`. A folder stands for all numbered
experiments below it, those in folders whose names begin with a digit."""


@dataclass(frozen=True)
class Job:
    """A job runs an experiment with SLURM."""

    file: Path
    config: Config  #: configuration read from this file
    overrides: list[str]  #: overrides from the command line
    sweep: Sweep  #: the members of the job array
    runs: list[Path]  #: run directory of each member; one directory where the job is no array
    script: str  #: script for ``sbatch``
    measured: str | None  #: measurement from which its time and memory are chosen; None where there is none
    build: str | None = None  #: script that builds the store before the job
    comparison: str | None = None  #: script that compares the runs after the job

    @property
    def store(self) -> Path:
        """Return the path of the store that the runs read."""
        from dglcell.training.prepare import store_path

        return store_path(self.config)

    @property
    def page(self) -> Path:
        """Return the path of the page that compares the runs."""
        return self.config.run_directory.parent / "comparison.html"

    def name(self, step: str = "") -> str:
        """Return the name under which the runs are queued, or a step of a pipeline."""
        from dglcell.cluster.scripts import job_name, name_of_runs

        return name_of_runs(job_name(self.config) + step, self.sweep, self.config.seed)


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Add the options that make a job array."""
    parser.add_argument("--seeds", metavar="LIST", help="e.g. 0-4 or 0,3,7: a member of a job array each")
    parser.add_argument(
        "--split-seeds", action="store_true", help="divide the strains anew for every seed: split.seed is the seed too"
    )
    parser.add_argument("--sweep", action="append", default=[], metavar="key=a,b", help=SWEEP_HELP)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the option for where scripts are written."""
    parser.add_argument(
        "--output", "-o", metavar="PATH", help="write it here; into a folder (FOLDER/) as FOLDER/EXPERIMENT.sh"
    )
    add_overwrite(parser)


def experiments(path: Path) -> list[Path]:
    """Return the file itself, or the numbered experiments of a folder."""
    from dglcell.config.read import PACKAGED, experiment_file

    packaged = PACKAGED / str(path).removeprefix("conf").lstrip("/")
    path = packaged if not path.exists() and packaged.is_dir() else path
    if not path.is_dir():
        return [experiment_file(path)]
    found = [file for file in sorted(path.rglob("*.yaml")) if file.resolve().parent.name[0].isdigit()]
    if not found:
        raise ConfigError(
            f"no numbered experiment is in '{path}'", expected="files in folders like conf/101-collins2007"
        )
    return found


def make_job(options: argparse.Namespace, file: Path) -> Job:
    """Read an experiment and check every member of its array."""
    from dglcell.cluster.scripts import Sweep, render, with_limits
    from dglcell.config.read import load_config

    sweep = Sweep.parse(options.seeds, options.sweep, options.split_seeds)
    overrides = keys_of(options)
    config = load_config(file, overrides)
    members = sweep.members(config.experiment.name)
    runs = [(load_config(file, [*overrides, *member]) if member else config).run_directory for member in members]
    config, said = with_limits(config)
    return Job(file, config, overrides, sweep, runs, render(config, file, overrides, sweep), said)


def render(options: argparse.Namespace) -> None:
    """Run ``dglcell job render``."""
    from dglcell.files.atomic import atomic_file

    files = experiments(options.config)
    if options.output is None:
        if len(files) > 1:
            raise ConfigError(f"'{options.config}' has {len(files)} experiments", do="give a folder with `--output`")
        print(make_job(options, files[0]).script, end="")
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
                partial.write_text(job.script, encoding="utf-8")
            print(f"script written to {path}")
    if into_folder:
        print(f"{count(len(files), 'script')} in {output} up to date")


def _is_up_to_date(path: Path, job: Job) -> bool:
    return path.is_file() and path.read_bytes() == job.script.encode()


def submit(options: argparse.Namespace) -> None:
    """Run ``dglcell job submit``: nothing is submitted unless SLURM would take everything."""
    if options.dry_run:
        _show(options)
        return
    from dglcell.cluster.scripts import queued, refuse_overlap

    jobs = _check(options)
    there = queued(Path.cwd())
    for job in jobs:
        refuse_overlap(job.name(), there)
    for job in jobs:
        _submit_job(job, there)


def _show(options: argparse.Namespace) -> None:
    """Print what would be submitted; SLURM is not asked."""
    for file in experiments(options.config):
        job = make_job(options, file)
        job = _pipeline(job) if options.pipeline else job
        print(f"# {file}: {count(len(job.runs), 'job')}, {', '.join(map(str, job.runs))}")
        if job.measured:
            print(f"# {job.measured}")
        print(*filter(None, (job.build, job.script, job.comparison)), sep="\n")
    print("# nothing was submitted")


def _submit_job(job: Job, there: dict[str, str]) -> None:
    """Submit the steps before the runs, the runs, and the steps after them, unless they are queued."""
    after: list[str] = []
    if job.build is not None:
        number = _submitted(job, f"build.{job.store.name}", job.build, there, "it builds the store")
        after = _after_success(number)
    logs = job.config.slurm.logs
    place = job.runs[0] if len(job.runs) == 1 else job.config.run_directory.parent
    said = f"output goes to {logs}/, the run to {place}"
    number = _submitted(job, job.name(), job.script, there, said, *after)
    if job.comparison is not None:
        said = f"it compares the runs in {job.page}"
        _submitted(job, job.name(".report"), job.comparison, there, said, *_after_success(number))


def _submitted(job: Job, name: str, script: str, there: dict[str, str], said: str, *options: str) -> str:
    """Submit a script unless its job is queued, and return the job's number."""
    from dglcell.cluster.scripts import submit_script

    if name in there:
        print(f"job {there[name]} is queued or running already: {name}")
        return there[name]
    number = there[name] = submit_script(script, Path.cwd(), job.config.slurm.logs, name, *options)
    print(f"job {number} submitted; {said}")
    return number


def _after_success(number: str) -> list[str]:
    """Return options of sbatch that start a job when another has succeeded, and cancel it when that one has failed."""
    return [f"--dependency=afterok:{number}", "--kill-on-invalid-dep=yes"]


def _pipeline(job: Job) -> Job:
    """Add scripts to a job: one that builds the store where there is none, and one that compares the runs."""
    from dglcell.cluster.scripts import render_build, render_comparison

    if len(job.runs) < 2:
        raise ConfigError("`--pipeline` compares runs, and this is one run", do="give `--seeds`, e.g. --seeds 0-4")
    comparison = render_comparison(job.config, job.file, job.runs, job.page)
    build = None if job.store.exists() else render_build(job.config, job.file, job.overrides, job.store)
    return replace(job, build=build, comparison=comparison)


def _check(options: argparse.Namespace) -> list[Job]:
    """Return all jobs after asking SLURM about each of them."""
    from dglcell.cluster.scripts import resources, try_script

    jobs, refused, files = [], 0, experiments(options.config)
    for file in files:
        try:
            job = make_job(options, file)
            print(f"{file}: valid; {count(len(job.runs), 'job')}\n  {resources(job.config)}", flush=True)
            if job.measured:
                print(f"  {job.measured}")
            if options.pipeline:
                job = _pipeline(job)
            elif not job.store.exists():  # each of the jobs would begin by building it
                said = f"store {job.store} is not there yet; built once beforehand: dglcell data build {job.file}"
                print(f"  {said}", flush=True)
            for script in filter(None, (job.build, job.comparison, job.script)):
                answer = try_script(script, Path.cwd())
            print(f"  {answer}", flush=True)
            jobs.append(job)
        except ConfigError as error:
            if len(files) == 1:
                raise
            print(f"{file}: {error}", file=sys.stderr)
            refused += 1
    if refused:
        raise DglcellError(
            f"{refused} of {len(files)} experiments would be refused", do="mend them, or submit one by one"
        )
    return jobs
