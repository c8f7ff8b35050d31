"""Run ``dglcell job``, which runs an experiment as a job of SLURM."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dglcell.cli.arguments import keys_of, load
from dglcell.cli.outputs import check_output
from dglcell.errors import ConfigError, DglcellError, count

if TYPE_CHECKING:
    from dglcell.cluster import jobs as scheduler
    from dglcell.cluster.jobs import Submitting
    from dglcell.cluster.scripts import Sweep
    from dglcell.config.experiment import Config

SWEEP_HELP = "every value with every seed is a member of a job array, e.g. optimizer.lr=1e-3,1e-4"
DRY_RUN_HELP = "only say what would be done"
PIPELINE_HELP = "build the store in a job before, where it is not there, and compare the runs in a job after them"
RUN_EPILOG = """\
Variables, modules and container are those of the job, and the run directory is the same. Members of an array run one
after the other, until one fails."""
EPILOG = """\
Resources are `trainer.devices`, `trainer.num_nodes` and the section `slurm`. A folder stands for all numbered
experiments below it, those in folders whose names begin with a digit."""


@dataclass(frozen=True)
class Job:
    """A job runs an experiment with SLURM.

    Attributes:
        config: configuration read from this file.
        overrides: overrides from the command line.
        sweep: the members of the job array.
        runs: run directory of each member; one directory where the job is no array.
        script: script for ``sbatch``.
        measured: measurement from which its time and memory are chosen; None where there is none.
        build: script that builds the store before the job.
        comparison: script that compares the runs after the job.
    """

    file: Path
    config: Config
    overrides: list[str]
    sweep: Sweep
    runs: list[Path]
    script: str
    measured: str | None
    build: str | None = None
    comparison: str | None = None

    @property
    def store(self) -> Path:
        """Return the path of the store that the runs read."""
        from dglcell.training.prepare import store_path

        return store_path(self.config)

    @property
    def page(self) -> Path:
        """Return the path of the page that compares the runs."""
        return self.config.run_directory.parent / "comparison.html"

    @property
    def tasks(self) -> dict[str, str]:
        """Return number of each member of the array → its run directory; without an array the number is empty."""
        numbers = [""] if len(self.runs) == 1 else map(str, range(len(self.runs)))
        return dict(zip(numbers, map(str, self.runs), strict=True))

    def with_build(self) -> Job:
        """Return the job with a script that builds the store, where there is none."""
        from dglcell.cluster.scripts import render_build

        build = None if self.store.exists() else render_build(self.config, self.file, self.overrides, self.store)
        return replace(self, build=build)


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Add the options that make a job array."""
    parser.add_argument("--seeds", metavar="LIST", help="e.g. 0-4 or 0,3,7: a member of a job array each")
    parser.add_argument(
        "--split-seeds", action="store_true", help="divide the strains anew for every seed: split.seed is the seed too"
    )
    parser.add_argument("--sweep", action="append", default=[], metavar="key=a,b", help=SWEEP_HELP)


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Add ``--dry-run``, which all verbs that change something have."""
    parser.add_argument("--dry-run", action="store_true", help=DRY_RUN_HELP)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the option for where scripts are written."""
    parser.add_argument(
        "--output", "-o", metavar="PATH", help="write it here; into a folder (FOLDER/) as FOLDER/EXPERIMENT.sh"
    )


def experiments(path: Path) -> list[Path]:
    """Return the file itself, or the numbered experiments of a folder.

    Raises:
        ConfigError: the folder has no such experiment.
    """
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


def make_job(options: argparse.Namespace, file: Path, *, measured: bool = False) -> Job:
    """Read an experiment and check every member of its array, as `job_of` does."""
    from dglcell.cluster.scripts import Sweep

    sweep = Sweep.parse(options.seeds, options.sweep, options.split_seeds)
    return job_of(file, keys_of(options), sweep, measured=measured)


def job_of(file: Path, overrides: list[str], sweep: Sweep, *, measured: bool = False) -> Job:
    """Return the job of an experiment with the members of a sweep, each of which is checked.

    Args:
        measured: look up the time and memory that finished runs took, where these are `auto`.
    """
    from dglcell.cluster.scripts import render, with_limits
    from dglcell.config.read import load_config

    config = load_config(file, overrides)
    members = sweep.members(config.experiment.name)
    runs = [(load_config(file, [*overrides, *member]) if member else config).run_directory for member in members]
    folders = {config.run_directory.parent, *(run.parent for run in runs)} if measured else ()
    config, said = with_limits(config, folders)
    return Job(file, config, overrides, sweep, runs, render(config, file, overrides, sweep), said)


def render(options: argparse.Namespace) -> None:
    """Run ``dglcell job render``.

    Raises:
        ConfigError: there are several scripts, and no folder for them is given.
    """
    from dglcell.files.atomic import atomic_file

    files = experiments(options.config)
    if options.output is None:
        if len(files) > 1:
            raise ConfigError(f"'{options.config}' has {len(files)} experiments", do="give a folder with `--output`")
        print(make_job(options, files[0]).script, end="")
        return
    output = Path(options.output)
    into_folder = options.config.is_dir() or output.is_dir() or options.output.endswith("/")
    for file in files:
        job = make_job(options, file)
        path = output / f"{job.config.experiment.name}.sh" if into_folder else output
        # Values of variables may be tokens.
        check_output(path, "a script of a job")
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
    """Run ``dglcell job check``."""
    _check(options)


def submit(options: argparse.Namespace) -> None:
    """Run ``dglcell job submit``: nothing is submitted unless SLURM would take everything."""
    from dglcell.cluster.jobs import Submitting, refuse_under_way
    from dglcell.cluster.scripts import job_name

    if options.dry_run:
        _show(options)
        return
    jobs = _check(options)
    submissions = [Submitting(job_name(job.config), Path.cwd(), job.config.slurm.logs) for job in jobs]
    for job, submission in zip(jobs, submissions, strict=True):
        if not submission.goes_on:
            refuse_under_way(submission.name, [str(run) for run in job.runs], Path.cwd(), submission.logs)
    for job, submission in zip(jobs, submissions, strict=True):
        if submission.goes_on:
            print(f"going on with the submission of {submission.name} that was not finished")
        _submit_job(job, submission)


def _show(options: argparse.Namespace) -> None:
    """Print what would be submitted; SLURM is not asked."""
    for file in experiments(options.config):
        job = make_job(options, file, measured=True)
        job = _pipeline(job) if options.pipeline else job
        print(f"# {file}: {count(len(job.runs), 'job')}, {', '.join(map(str, job.runs))}")
        if job.measured:
            print(f"# {job.measured}")
        print(*filter(None, (job.build, job.script, job.comparison)), sep="\n")
    print("# nothing was submitted")


def _submit_job(job: Job, submission: Submitting) -> None:
    """Submit the steps before the runs, the runs, and the steps after them."""
    after: list[str] = []
    if job.build is not None:
        number = submission.script(job.build)
        print(f"job {number} submitted; it builds the store")
        after = after_success(number)
    number = submission.runs(job.script, job.tasks, *after)
    place = job.runs[0] if len(job.runs) == 1 else job.config.run_directory.parent
    print(f"job {number} submitted; output goes to {submission.logs}/, the run to {place}")
    if job.comparison is not None:
        number = submission.script(job.comparison, *after_success(number))
        print(f"job {number} submitted; it compares the runs in {job.page}")
    submission.finish()


def after_success(number: str) -> list[str]:
    """Return options of sbatch that start a job when another has succeeded, and cancel it when that one has failed."""
    return [f"--dependency=afterok:{number}", "--kill-on-invalid-dep=yes"]


def _pipeline(job: Job) -> Job:
    """Add scripts to a job: one that builds the store where there is none, and one that compares the runs."""
    from dglcell.cluster.scripts import render_comparison

    if len(job.runs) < 2:
        raise ConfigError("`--pipeline` compares runs, and this is one run", do="give `--seeds`, e.g. --seeds 0-4")
    comparison = render_comparison(job.config, job.file, job.runs, job.page)
    return replace(job.with_build(), comparison=comparison)


def _check(options: argparse.Namespace) -> list[Job]:
    """Return all jobs after asking SLURM about each of them.

    Raises:
        DglcellError: SLURM would refuse at least one of the jobs; the message gives all of these.
    """
    from dglcell.cluster.jobs import try_script
    from dglcell.cluster.scripts import resources

    jobs, refused, files = [], 0, experiments(options.config)
    pipeline = getattr(options, "pipeline", False)
    for file in files:
        try:
            job = make_job(options, file, measured=True)
            print(f"{file}: valid; {count(len(job.runs), 'job')}\n  {resources(job.config)}", flush=True)
            if job.measured:
                print(f"  {job.measured}")
            if pipeline:
                job = _pipeline(job)
            else:
                _mention_store(job)
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


def _mention_store(job: Job) -> None:
    """Warn where each of the jobs would begin by building the store itself."""
    if not job.store.exists():
        print(f"  store {job.store} is not there yet; built once beforehand: dglcell data build {job.file}", flush=True)


def run(options: argparse.Namespace) -> None:
    """Run ``dglcell job run --local``."""
    from dglcell.cluster.scripts import render_here
    from dglcell.config.read import experiment_file

    job = make_job(options, experiment_file(options.config))
    script = render_here(job.config, job.file, job.overrides, job.sweep)
    if options.dry_run:
        print(script, end="")
        return
    sys.stdout.flush()
    # Values of variables may be tokens, and other users can see the command line of a process.
    with tempfile.TemporaryFile() as file:
        file.write(script.encode())
        file.flush()
        os.set_inheritable(file.fileno(), True)
        if shutil.which("dglcell") is None:
            # The script calls dglcell by name; the environment of a dglcell that was called by path may be inactive.
            os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        os.execvp("bash", ["bash", f"/dev/fd/{file.fileno()}"])


def status(options: argparse.Namespace) -> None:
    """Run ``dglcell job status``."""
    from dglcell.cluster.jobs import DAYS, ended, queue
    from dglcell.cluster.scripts import job_name

    name = job_name(load(options)) if options.config else None
    jobs = queue(name)
    _print_jobs(jobs)
    if not jobs:
        print("no jobs are queued or running")
    try:
        finished = ended(name)
    except DglcellError as error:
        print(f"Finished jobs are not listed; `dglcell runs` lists runs.\n{error}", file=sys.stderr)
        return
    if finished:
        print(f"ended in the last {DAYS} days:")
        _print_jobs(finished)


def _print_jobs(jobs: list[scheduler.Job]) -> None:
    for job in jobs:
        print(f"{job.number:>12}  {job.name:<40}  {job.state:<12} {job.used:>12} of {job.limit:<12} {job.where}")


def retry(options: argparse.Namespace) -> None:
    """Run ``dglcell job retry``."""
    from dglcell.cluster.jobs import Submitting, find_submitted
    from dglcell.cluster.scripts import job_name

    config = load(options)
    name, slurm = job_name(config), config.slurm
    found = find_submitted(name, Path.cwd(), slurm.logs)
    print(f"{count(found.finished, 'run')} finished, {found.under_way} queued or running")
    for one in found.unfinished:
        if options.dry_run:
            print(f"would run again what was {', '.join(one.jobs)}")
            continue
        tasks, at_once = ",".join(one.runs), "" if slurm.array_limit is None else f"%{slurm.array_limit}"
        array = [f"--array={tasks}{at_once}"] if tasks else []
        submission = Submitting(name, Path.cwd(), slurm.logs)
        number = submission.runs(one.script, one.runs, *array)
        submission.finish()
        print(f"job {number} submitted; it runs again what was {', '.join(one.jobs)}")
    if not found.unfinished:
        print("nothing is to be submitted again")


def cancel(options: argparse.Namespace) -> None:
    """Run ``dglcell job cancel``."""
    from dglcell.cluster.jobs import cancel as cancel_jobs
    from dglcell.cluster.jobs import queue
    from dglcell.cluster.scripts import job_name

    jobs = queue(job_name(load(options)))
    if options.dry_run:
        _print_jobs(jobs)
        print(f"{count(len(jobs), 'job')} would be cancelled")
        return
    cancel_jobs(jobs)
    print(f"{count(len(jobs), 'job')} cancelled")


def logs(options: argparse.Namespace) -> None:
    """Run ``dglcell job logs``."""
    from dglcell.cluster.jobs import log_files
    from dglcell.cluster.scripts import job_name

    config = load(options)
    files = log_files(job_name(config), Path.cwd() / config.slurm.logs)
    for path in files if options.all else files[-1:]:
        print(f"==> {path} <==")
        print(*path.read_text(encoding="utf-8", errors="replace").splitlines()[-options.lines :], sep="\n")
