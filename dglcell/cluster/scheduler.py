"""Talking to SLURM: try a script, submit it, ask how jobs are."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dglcell.errors import ConfigError, DglcellError, MissingDependencyError

QUEUE_FIELDS = ("JobID", "Name", "State", "TimeUsed", "TimeLimit", "NumNodes", "ReasonList")


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
    if "ontact slurm controller" in answer:
        raise DglcellError("SLURM does not answer", got=answer, do="try again later")
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
    fields = ",".join(f"{field}:|" for field in QUEUE_FIELDS)
    done = _call(["squeue", "--me", "--noheader", f"--Format={fields}"], Path.cwd())
    if done.returncode:
        raise DglcellError("SLURM does not answer", got=done.stderr.strip())
    jobs = [Job(*(cell.strip() for cell in line.split("|")[: len(QUEUE_FIELDS)])) for line in done.stdout.splitlines()]
    return [job for job in jobs if name is None or job.name == name]


def _call(command: list[str], folder: Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    if shutil.which(command[0]) is None:
        raise MissingDependencyError(
            f"`{command[0]}` is not on this machine", do="run this on a login node of the cluster"
        )
    return subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True)
