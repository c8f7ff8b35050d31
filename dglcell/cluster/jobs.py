"""Try and submit scripts with SLURM, report the state of jobs, and submit unfinished runs again."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dglcell.errors import ConfigError, DataError, DglcellError, MissingDependencyError, listing, shorten
from dglcell.files.atomic import atomic_file
from dglcell.files.owner import current_holder
from dglcell.files.untrusted import TEXT, Kind, mapping_of, read_fields
from dglcell.runs.directory import RunDirectory
from dglcell.runs.usage import read_usage

QUEUE_FORMAT = "%i|%T|%M|%l|%D|%R|%j"
"""Fields are number (with the array's task), state, times, nodes, where; the name is last as it may hold anything."""

ENDED_FORMAT = "JobID,State,Elapsed,Timelimit,NNodes,End,ExitCode,JobName"
DAYS = 7
"""Finished jobs are listed for so many days."""

NO_ANSWER = (
    *("ontact slurm controller", "onnection refused", "onnection timed out", "timed out on send/recv"),
    *("onfiguration source", "Unable to process configuration", "rotocol authentication", "o route to host"),
)
"""With these texts SLURM's commands say that the controller is not there, or that they cannot find it."""

PATIENCE = 120
"""SLURM's commands have so many seconds to answer; they try again by themselves."""


@dataclass(frozen=True)
class Job:
    """A job is a job of SLURM or a member of a job array that is queued, running or finished.

    Attributes:
        number: number of the job, with the array's task for a member of an array, e.g. ``17_3``.
        name: name of the experiment's job.
        state: state in SLURM's words, e.g. ``RUNNING``.
        used: time since the job started.
        limit: time that the job may take.
        nodes: number of nodes.
        where: names of the nodes, or the reason why the job waits; for a finished job its end and exit code.
    """

    number: str
    name: str
    state: str
    used: str
    limit: str
    nodes: str
    where: str


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


def submit_script(script: str, folder: Path, logs: str, *options: str) -> str:
    """Submit a script, and return the job's number.

    Args:
        logs: folder of output files below ``folder``; SLURM loses the output of a job whose folder is missing.
        options: options of ``sbatch``, which override those of the script.

    Raises:
        ConfigError: SLURM refuses the script.
        DglcellError: SLURM's answer is not a number, so that it is not known whether SLURM has taken the job.
    """
    (folder / logs).mkdir(parents=True, exist_ok=True)
    done = _call(["sbatch", "--parsable", *options], folder, script)
    if done.returncode:
        raise ConfigError("SLURM refuses this job", got=done.stderr.strip(), do="see `dglcell job check`")
    number = done.stdout.strip().split(";")[0]
    if not re.fullmatch("[0-9]+", number):
        raise DglcellError(
            "SLURM's answer is not the number of a job, which may be queued or not",
            got=shorten(done.stdout.strip(), 200) or "nothing",
            do="give the same command again: it looks for the job first",
        )
    return number


def queue(name: str | None = None) -> list[Job]:
    """Return the user's queued and running jobs, of one experiment or of all.

    Raises:
        DglcellError: SLURM does not answer.
    """
    jobs = [_job(line) for line in _queued(QUEUE_FORMAT, "--array")]
    return [job for job in jobs if name is None or job.name == name]


def _queued(form: str, *options: str) -> list[str]:
    """Return the lines of SLURM's queue about the user's jobs."""
    done = _call(["squeue", "--me", "--noheader", *options, f"--format={form}"], Path.cwd())
    if done.returncode:
        raise DglcellError("SLURM does not answer", got=done.stderr.strip(), do="try again when `squeue --me` works")
    return [line for line in done.stdout.splitlines() if line.count("|") >= form.count("|")]


def ended(name: str | None = None) -> list[Job]:
    """Return the user's jobs that ended in the last days, the newest last.

    Raises:
        DglcellError: SLURM keeps no accounts of jobs, or does not report them.
    """
    since = [f"--starttime=now-{DAYS}days", f"--user={os.getuid()}", f"--format={ENDED_FORMAT}"]
    done = _call(["sacct", "--allocations", "--noheader", "--parsable2", *since], Path.cwd())
    if done.returncode:
        raise DglcellError(
            "SLURM's accounting does not answer",
            got=done.stderr.strip(),
            do="see whether `sacct` works here; some clusters keep no accounts of jobs",
        )
    jobs = [_ended_job(line) for line in done.stdout.splitlines() if line.count("|") >= ENDED_FORMAT.count(",")]
    return [job for job in jobs if job is not None and (name is None or job.name == name)]


def cancel(jobs: Sequence[Job]) -> None:
    """Cancel jobs; do nothing if there are none.

    Raises:
        DglcellError: SLURM does not answer, or does not cancel a job.
    """
    if jobs:
        done = _call(["scancel", *(job.number for job in jobs)], Path.cwd())
        if done.returncode:
            raise DglcellError(
                "SLURM does not cancel these jobs",
                got=done.stderr.strip(),
                do="see with `dglcell job status` which of them are still there, and give the command again",
            )


def log_files(name: str, logs: Path) -> list[Path]:
    """Return the output files of jobs, the newest last.

    Raises:
        DataError: there are no output files.
    """
    found = sorted(logs.glob(f"{glob.escape(name)}-[0-9]*.out"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise DataError(
            f"no output of '{name}' is in '{logs}'",
            do="work in the folder that the job was submitted in; see `dglcell job status`",
        )
    return found


def _job(line: str) -> Job:
    number, state, used, limit, nodes, where, name = line.split("|", QUEUE_FORMAT.count("|"))
    return Job(number.strip(), name, state, used.strip(), limit.strip(), nodes, where)


def _ended_job(line: str) -> Job | None:
    """Read a job from a line of SLURM's accounts; None if the job has not ended."""
    number, state, used, limit, nodes, end, code, name = line.split("|", ENDED_FORMAT.count(","))
    return None if end == "Unknown" else Job(number, name, state, used, limit, nodes, f"ended {end}, exit code {code}")


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


@dataclass(frozen=True)
class Submission:
    """A submission is a job or a job array that SLURM has taken.

    Attributes:
        number: number of the job.
        script: the script for ``sbatch``.
        runs: task of the job array → run directory; the task is empty for a job that is not an array.
    """

    number: str
    script: str
    runs: dict[str, str]

    @property
    def jobs(self) -> dict[str, str]:
        """Return number, as SLURM shows it (``17_3``) → run directory."""
        return {f"{self.number}_{task}" if task else self.number: run for task, run in self.runs.items()}


@dataclass(frozen=True)
class Found:
    """This holds the outcome of an experiment's submitted runs.

    Attributes:
        unfinished: submissions with the runs that have not finished and are neither queued nor running.
        finished: number of runs that have finished.
        under_way: number of runs that are queued or running.
    """

    unfinished: list[Submission]
    finished: int
    under_way: int


class Submitting:
    """Submit the scripts of one command so that SLURM takes each once, however often the command is killed.

    A record of each script is written before the script is submitted, with a comment that is also given to SLURM. The
    same command, given again, looks for jobs with this comment.

    Args:
        logs: folder of output files below ``folder``.
    """

    def __init__(self, name: str, folder: Path, logs: str) -> None:
        self.name, self.folder, self.logs = name, folder, logs
        self.path = folder / logs / f"{name}-submitting.json"
        self.steps: dict[str, str] = _read_record(self.path, STEPS)["steps"] if self.path.exists() else {}

    @property
    def goes_on(self) -> bool:
        """Return whether an earlier command has begun to submit and was killed."""
        return bool(self.steps)

    def script(self, script: str, *options: str) -> str:
        """Submit a script unless that was done already, and return the job's number."""
        comment = f"dglcell-{hashlib.sha256(script.encode()).hexdigest()[:20]}"
        number = self.steps.get(comment)
        if number is None:
            self._note(comment, "")
        elif number == "":
            number = next((found for found, _, said in _jobs_by_folder() if said == comment), None)
        if not number:
            number = submit_script(script, self.folder, self.logs, f"--comment={comment}", *options)
        self._note(comment, number)
        return number

    def runs(self, script: str, runs: dict[str, str], *options: str) -> str:
        """Submit the script of an experiment's runs, record it for `job retry`, and return the job's number."""
        number = self.script(script, *options)
        self._write(self.folder / self.logs / f"{self.name}-{number}.json", {"script": script, "runs": runs})
        return number

    def finish(self) -> None:
        """Remove the record of what is being submitted, because everything is submitted."""
        self.path.unlink(missing_ok=True)
        self.steps = {}

    def _note(self, comment: str, number: str) -> None:
        self.steps[comment] = number
        self._write(self.path, {"steps": self.steps})

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as partial:
            partial.touch(0o600)  # values of variables in the script may be tokens
            partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _jobs_by_folder() -> list[tuple[str, str, str]]:
    """Return the number, folder and comment of each of the user's jobs that are queued or running."""
    lines = [line.split("|", 2) for line in _queued("%F|%Z|%k")]
    return [(number.strip(), folder.strip(), comment.strip()) for number, folder, comment in lines]


def refuse_under_way(name: str, runs: Collection[str], folder: Path, logs: str) -> None:
    """Refuse to submit runs that are queued or running.

    Raises:
        ConfigError: some runs are, or jobs of this name and folder are queued and no record says which runs they have.
        DglcellError: SLURM does not answer.
    """
    queued = {job.number for job in queue(name)}
    known: dict[str, str] = {}
    for path in _records(name, folder, logs):
        known |= _read(path).jobs
    again = sorted({known[number] for number in queued & known.keys()} & set(runs))
    strangers = sorted(queued - known.keys())
    if strangers:
        here = {number for number, place, _ in _jobs_by_folder() if Path(place) == folder}
        strangers = [number for number in strangers if number.partition("_")[0] in here]
    if again or strangers:
        raise ConfigError(
            "these runs are queued or running" if again else f"jobs of '{name}' are queued or running",
            got=listing(again or strangers),
            do="wait for them, or take them back with `dglcell job cancel`; `dglcell job status` lists them",
        )


def _records(name: str, folder: Path, logs: str) -> list[Path]:
    """Return the records of submissions, the newest last."""
    files = [path for path in (folder / logs).glob("*.json") if re.fullmatch(rf"{re.escape(name)}-[0-9]+", path.stem)]
    return sorted(files, key=lambda path: path.stat().st_mtime)


def find_submitted(name: str, folder: Path, logs: str) -> Found:
    """Find the outcome of an experiment's runs, each as it was last submitted.

    Raises:
        DataError: nothing was submitted in this folder, or its record is damaged.
        DglcellError: SLURM does not answer.
    """
    files = _records(name, folder, logs)
    if not files:
        raise DataError(
            f"no submission of '{name}' is in '{folder / logs}'",
            do="work in the folder that `dglcell job submit` was called in",
        )
    submissions = [_read(path) for path in files]
    newest = {run: job for submission in submissions for job, run in submission.jobs.items()}
    queued = {job.number for job in queue(name)}
    under_way = {run for submission in submissions for job, run in submission.jobs.items() if job in queued}
    under_way |= {run for run in newest if current_holder(RunDirectory(folder / run).owner)}
    finished = {run for run in newest.keys() - under_way if read_usage(RunDirectory(folder / run)) is not None}
    wanted = {job for run, job in newest.items() if run not in under_way | finished}
    unfinished = []
    for one in submissions:
        runs = {task: run for (task, run), job in zip(one.runs.items(), one.jobs, strict=True) if job in wanted}
        unfinished += [replace(one, runs=runs)] if runs else []
    return Found(unfinished, len(finished), len(under_way))


STEPS = {"steps": mapping_of(TEXT)}
SUBMITTED = {"script": TEXT, "runs": mapping_of(Kind("a path", lambda v: TEXT.fits(v) and "\0" not in v))}
"""These are the fields of a record."""


def _read(path: Path) -> Submission:
    content = _read_record(path, SUBMITTED)
    return Submission(path.stem.rpartition("-")[2], content["script"], content["runs"])


def _read_record(path: Path, fields: dict[str, Kind]) -> dict[str, Any]:
    do = "remove it, and submit the experiment again"
    return read_fields(path, fields, DataError, expected="a submission", do=do)
