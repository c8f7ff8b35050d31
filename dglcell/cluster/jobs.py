"""Try and submit scripts with SLURM, each once: what is queued under its name is not submitted again."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dglcell.cluster.scripts import Sweep, seeds_of
from dglcell.errors import ConfigError, DglcellError, MissingDependencyError, listing, shorten

NO_ANSWER = (
    *("ontact slurm controller", "onnection refused", "onnection timed out", "timed out on send/recv"),
    *("onfiguration source", "Unable to process configuration", "rotocol authentication", "o route to host"),
)
"""With these texts SLURM's commands say that the controller is not there, or that they cannot find it."""

PATIENCE = 120
"""SLURM's commands have so many seconds to answer; they try again by themselves."""


def try_script(script: str, folder: Path) -> str:
    """Ask SLURM whether and when it would start a script, without submitting it, and return its answer.

    Raises:
        ConfigError: SLURM would refuse the script; the error has SLURM's own words.
        DglcellError: SLURM does not answer.
    """
    done = _call(["sbatch", "--test-only"], folder, script)
    answer = (done.stderr or done.stdout).strip()
    if done.returncode:
        raise ConfigError("SLURM would refuse this job", got=answer, do="mend the experiment's `slurm` section")
    return answer.removeprefix("sbatch: ")


def submit_script(script: str, folder: Path, logs: str, name: str, *options: str) -> str:
    """Submit a script, and return the job's number.

    Args:
        logs: folder of output files below ``folder``; SLURM loses the output of a job whose folder is missing.
        name: name of the job, by which `queued` finds it.
        options: options of ``sbatch``, which override those of the script.

    Raises:
        ConfigError: SLURM refuses the script.
        DglcellError: SLURM's answer is not a number, so that it is not known whether SLURM has taken the job.
    """
    (folder / logs).mkdir(parents=True, exist_ok=True)
    done = _call(["sbatch", "--parsable", f"--job-name={name}", *options], folder, script)
    if done.returncode:
        raise ConfigError("SLURM refuses this job", got=done.stderr.strip(), do="mend the experiment's `slurm` section")
    number = done.stdout.strip().split(";")[0]
    if not re.fullmatch("[0-9]+", number):
        raise DglcellError(
            "SLURM's answer is not the number of a job, which may be queued or not",
            got=shorten(done.stdout.strip(), 200) or "nothing",
            do="give the same command again: it looks for the job first",
        )
    return number


def queued(folder: Path) -> dict[str, str]:
    """Return name → number of the user's jobs that were submitted in a folder and are queued or running.

    Raises:
        DglcellError: SLURM does not answer.
    """
    done = _call(["squeue", "--me", "--noheader", "--format=%F|%Z|%j"], folder)
    if done.returncode:
        raise DglcellError("SLURM does not answer", got=done.stderr.strip(), do="try again when `squeue --me` works")
    jobs = [line.split("|", 2) for line in done.stdout.splitlines() if line.count("|") >= 2]
    return {name: number.strip() for number, place, name in jobs if Path(place.strip()) == folder}


def name_of_runs(name: str, sweep: Sweep, seed: int) -> str:
    """Return the name of a job: its experiment, the values that are swept, and its seeds."""
    values = [f"{key}={','.join(chosen)}" for key, chosen in sweep.values]
    return ".".join([name, *values, f"seed-{','.join(map(str, sweep.seeds or (seed,)))}"])


def refuse_overlap(name: str, jobs: Mapping[str, str]) -> None:
    """Refuse runs of which some, but not all, are queued under another name.

    Args:
        name: as `name_of_runs` returns it.
        jobs: as `queued` returns them.

    Raises:
        ConfigError: a job with a seed in common is queued.
    """
    start, _, seeds = name.rpartition(".seed-")
    wanted = set(seeds_of(seeds))
    for other, number in jobs.items():
        before, found, of_other = other.rpartition(".seed-")
        if other != name and found and before == start and wanted & set(seeds_of(of_other)):
            raise ConfigError(
                "some of these runs are queued or running",
                got=f"job {number}, {other}",
                expected=f"no job with the seeds {listing(sorted(wanted & set(seeds_of(of_other))))}",
                do=f"leave these seeds out, wait, or take the job back with `scancel {number}`",
            )


def _call(command: list[str], folder: Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    if shutil.which(command[0]) is None:
        raise MissingDependencyError(
            f"`{command[0]}` is not on this machine", do="run this on a login node of the cluster"
        )
    try:
        done = subprocess.run(
            command, cwd=folder, input=text, capture_output=True, text=True, timeout=PATIENCE, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise DglcellError("SLURM does not answer", got=f"no answer in {PATIENCE} s", do="try again later") from None
    if done.returncode and any(sign in done.stderr + done.stdout for sign in NO_ANSWER):
        answer = (done.stderr or done.stdout).strip().splitlines()[-1]
        raise DglcellError("SLURM does not answer", got=answer, do="try again later, or on a login node")
    return done
