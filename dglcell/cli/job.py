"""``dglcell job``: an experiment as a job of SLURM."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dglcell.cli.arguments import load

if TYPE_CHECKING:
    from dglcell.cluster.sweep import Sweep
    from dglcell.config import Config

SWEEP_HELP = "every value with every seed is a member of a job array, e.g. optimizer.lr=1e-3,1e-4"


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Options that make a job array."""
    parser.add_argument("--seeds", metavar="LIST", help="e.g. 0-4 or 0,3,7: a member of a job array each")
    parser.add_argument("--sweep", action="append", default=[], metavar="key=a,b", help=SWEEP_HELP)


def _script(options: argparse.Namespace) -> tuple[Config, Sweep, str]:
    """Experiment, sweep and script; every member of the array is a valid experiment."""
    from dglcell.cluster.job import render
    from dglcell.cluster.sweep import Sweep
    from dglcell.config_io import load_config

    config = load(options)
    sweep = Sweep.parse(options.seeds, options.sweep)
    for member in sweep.members(config.experiment.name):
        load_config(options.config, [*options.overrides, *member])
    raw = [f"paths.raw={options.raw}"] if options.raw else []
    return config, sweep, render(config, options.config, [*options.overrides, *raw], sweep)


def render(options: argparse.Namespace) -> None:
    """``dglcell job render``."""
    from dglcell.files import atomic_file

    script = _script(options)[2]
    if options.output is None:
        print(script, end="")
        return
    with atomic_file(options.output) as partial:
        partial.write_text(script)
    print(f"script written to {options.output}")


def check(options: argparse.Namespace) -> None:
    """``dglcell job check``."""
    from dglcell.cluster.scheduler import try_script

    config, sweep, script = _script(options)
    members = sweep.members(config.experiment.name)
    tasks = config.trainer.devices * config.trainer.num_nodes
    print(f"{options.config}: valid; {len(members)} job{'s' if len(members) > 1 else ''} of {tasks} tasks")
    print(try_script(script, Path.cwd()))


def submit(options: argparse.Namespace) -> None:
    """``dglcell job submit``."""
    from dglcell.cluster.scheduler import submit_script, try_script

    config, _, script = _script(options)
    print(try_script(script, Path.cwd()))
    number = submit_script(script, Path.cwd(), config.slurm.logs)
    print(f"job {number} submitted; output goes to {config.slurm.logs}/, the run to {config.run_directory}")


def status(options: argparse.Namespace) -> None:
    """``dglcell job status``."""
    from dglcell.cluster.job import job_name
    from dglcell.cluster.scheduler import queue

    jobs = queue(job_name(load(options)) if options.config else None)
    for job in jobs:
        print(f"{job.number:>12}  {job.name:<40}  {job.state:<12} {job.used:>12} of {job.limit:<12} {job.where}")
    if not jobs:
        print("no jobs are queued or running")
