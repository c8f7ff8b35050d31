"""``dglcell job``: an experiment as a job of SLURM."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dglcell.cli.arguments import load
from dglcell.errors import ConfigError, DglcellError

if TYPE_CHECKING:
    from dglcell.config import Config

SWEEP_HELP = "every value with every seed is a member of a job array, e.g. optimizer.lr=1e-3,1e-4"
EPILOG = """\
Resources are `trainer.devices`, `trainer.num_nodes` and the section `slurm`. A folder stands for all numbered
experiments below it, those in folders whose names begin with a digit."""


@dataclass(frozen=True)
class Job:
    """An experiment's job.

    Attributes:
        file: of the experiment.
        config: read from it.
        members: of the job array; 1 where it is none.
        script: for ``sbatch``.
    """

    file: Path
    config: Config
    members: int
    script: str


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Options that make a job array."""
    parser.add_argument("--seeds", metavar="LIST", help="e.g. 0-4 or 0,3,7: a member of a job array each")
    parser.add_argument(
        "--split-seeds", action="store_true", help="divide the strains anew for every seed: split.seed is the seed too"
    )
    parser.add_argument("--sweep", action="append", default=[], metavar="key=a,b", help=SWEEP_HELP)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Where scripts are written."""
    parser.add_argument(
        "--output", "-o", type=Path, metavar="PATH", help="write it here; into a folder as FOLDER/EXPERIMENT.sh"
    )


def experiments(path: Path) -> list[Path]:
    """The file itself, or the numbered experiments of a folder.

    Raises:
        ConfigError: the folder has none.
    """
    if not path.is_dir():
        from dglcell.config_io import experiment_file

        return [experiment_file(path)]
    found = [file for file in sorted(path.rglob("*.yaml")) if file.resolve().parent.name[0].isdigit()]
    if not found:
        raise ConfigError(
            f"no numbered experiment is in '{path}'", expected="files in folders like conf/101-collins2007"
        )
    return found


def make_job(options: argparse.Namespace, file: Path) -> Job:
    """Read an experiment; every member of the array is valid."""
    from dglcell.config_io import load_config
    from dglcell.slurm import Sweep, render

    raw = [f"paths.raw={options.raw}"] if options.raw else []
    overrides = [*options.overrides, *raw]
    config = load_config(file, overrides)
    sweep = Sweep.parse(options.seeds, options.sweep, options.split_seeds)
    members = sweep.members(config.experiment.name)
    for member in members:
        load_config(file, [*overrides, *member])
    return Job(file, config, len(members), render(config, file, overrides, sweep))


def render(options: argparse.Namespace) -> None:
    """``dglcell job render``.

    Raises:
        ConfigError: several scripts, and no folder for them.
    """
    from dglcell.files import atomic_file

    files, output = experiments(options.config), options.output
    if output is None:
        if len(files) > 1:
            raise ConfigError(f"'{options.config}' has {len(files)} experiments", do="give a folder with `--output`")
        print(make_job(options, files[0]).script, end="")
        return
    into_folder = options.config.is_dir() or output.is_dir()
    for file in files:
        job = make_job(options, file)
        path = output / f"{job.config.experiment.name}.sh" if into_folder else output
        # Values of variables may be tokens.
        private = bool(job.config.slurm.environment)
        is_open = private and path.exists() and path.stat().st_mode & 0o077
        if not path.exists() or path.read_text(encoding="utf-8") != job.script or is_open:
            with atomic_file(path) as partial:
                partial.touch(0o600 if private else 0o666)
                partial.write_text(job.script, encoding="utf-8")
            print(f"script written to {path}")
    if into_folder:
        print(f"{count(len(files), 'script')} in {output} up to date")


def check(options: argparse.Namespace) -> None:
    """``dglcell job check``."""
    _check(options)


def submit(options: argparse.Namespace) -> None:
    """``dglcell job submit``: nothing is submitted unless SLURM would take everything."""
    from dglcell.slurm import submit_script

    for job in _check(options):
        number = submit_script(job.script, Path.cwd(), job.config.slurm.logs)
        run = job.config.run_directory if job.members == 1 else job.config.run_directory.parent
        print(f"job {number} submitted; output goes to {job.config.slurm.logs}/, the run to {run}")


def _check(options: argparse.Namespace) -> list[Job]:
    """All jobs, after SLURM was asked about each.

    Raises:
        DglcellError: one of several would be refused; all of them are said.
    """
    from dglcell.slurm import resources, try_script

    jobs, refused, files = [], 0, experiments(options.config)
    for file in files:
        try:
            job = make_job(options, file)
            print(f"{file}: valid; {count(job.members, 'job')}\n  {resources(job.config)}", flush=True)
            _mention_store(job)
            print(f"  {try_script(job.script, Path.cwd())}", flush=True)
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


def _mention_store(job: Job) -> None:
    """Say so where the jobs would begin with building the store, each by itself."""
    from dglcell.training.prepare import store_path

    store = store_path(job.config)
    if not store.exists():
        print(f"  store {store} is not there yet; built once beforehand: dglcell data build {job.file}", flush=True)


def status(options: argparse.Namespace) -> None:
    """``dglcell job status``."""
    from dglcell.slurm import job_name, queue

    jobs = queue(job_name(load(options)) if options.config else None)
    for job in jobs:
        print(f"{job.number:>12}  {job.name:<40}  {job.state:<12} {job.used:>12} of {job.limit:<12} {job.where}")
    if not jobs:
        print("no jobs are queued or running")


def cancel(options: argparse.Namespace) -> None:
    """``dglcell job cancel``."""
    from dglcell.slurm import cancel as cancel_jobs
    from dglcell.slurm import job_name, queue

    jobs = queue(job_name(load(options)))
    cancel_jobs(jobs)
    print(f"{count(len(jobs), 'job')} cancelled")


def logs(options: argparse.Namespace) -> None:
    """``dglcell job logs``."""
    from dglcell.slurm import log_files

    files = log_files(load(options), Path.cwd())
    for path in files if options.all else files[-1:]:
        print(f"==> {path} <==")
        print(*path.read_text(encoding="utf-8", errors="replace").splitlines()[-options.lines :], sep="\n")


def count(number: int, thing: str) -> str:
    """E.g. ``2 jobs``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
