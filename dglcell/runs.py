"""Name the files of a run directory, and read and write the record of its epochs."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import subprocess
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dglcell
from dglcell.data.config import PARTS
from dglcell.errors import CheckpointError, listing
from dglcell.files.atomic import atomic_file, write_json
from dglcell.files.owner import refuse_if_taken_over
from dglcell.files.untrusted import Number, UnreadableError, Whole, check_fields, parse_json
from dglcell.machine import resident_peak

if TYPE_CHECKING:
    import torch


CHECKPOINTS: dict[str, tuple[str | None, str]] = {
    "best_loss": ("validation/loss", "min"),
    "best_pearson": ("validation/pearson", "max"),
    "best_average_precision": ("validation/average_precision", "max"),
    "last": (None, "min"),
}
"""Each name maps to the figure that decides whether an epoch is the best so far, and whether low or high is good."""

MEND = "run the `dglcell train` command of the run again: a finished run is evaluated anew"  # of damaged results


@dataclass(frozen=True)
class Inside:
    """An attribute of this class is the path of a file or folder inside a run directory."""

    name: str

    def __get__(self, run: RunDirectory | None, kind: type) -> Path:
        return Path(self.name) if run is None else run.path / self.name


@dataclass(frozen=True)
class RunDirectory:
    """A run directory knows the paths of the files of one run."""

    path: Path  # path of the directory, ``<runs>/<experiment>/seed-<seed>``

    config = Inside("config.yaml")  #: resolved configuration
    environment = Inside("environment.json")  #: versions, git state and hashes
    owner = Inside("owner.json")  #: lease of the process that trains here, while it trains
    wandb_id = Inside("wandb_id.txt")  #: id of the W&B run, also of a continued run
    split = Inside("split.npz")  #: split and its hash
    cell = Inside("cell")  #: cell graph, which lets the run predict on its own
    card = Inside("card.json")  #: model card, only of a run that was exported as a trained model
    metrics = Inside("metrics.jsonl")  #: record of epochs, one JSON line each
    usage = Inside("usage.json")  #: time and memory of the training
    results = Inside("results.json")  #: table of the model and the baselines
    calibration = Inside("calibration.npz")  #: of the intervals of what predicts; none without a validation part
    baselines = Inside("baselines.npz")  #: fitted baselines
    report = Inside("report.png")  #: the report's picture
    page = Inside("report.html")  #: the report, one file that contains everything
    names = Inside("names.csv")  #: standard names of genes, for a trained model whose users build its cell graph
    checkpoints = Inside("checkpoints")  #: folder of checkpoints
    last = Inside("checkpoints/last.ckpt")  #: of the last finished epoch
    interrupted = Inside("checkpoints/interrupted.ckpt")  #: of a run that was told to stop within an epoch

    def files(self) -> list[Path]:
        """Return the files of the run that exist, without files that others may have put beside them."""
        own = [getattr(self, name) for name, value in vars(RunDirectory).items() if isinstance(value, Inside)]
        own += [self.predictions(part) for part in PARTS]
        own += [path for folder in own if folder.is_dir() for path in folder.iterdir()]
        return [path for path in own if path.is_file()]

    def refuse_links(self) -> None:
        """Refuse to write where a part of the run is a link, through which another place would be written.

        Other files are replaced whole, so that a link in their place is replaced, too.

        Raises:
            CheckpointError: it is one; the error names it.
        """
        for path in (self.checkpoints, self.cell, self.metrics):
            if path.is_symlink():
                what = f"'{path}' is a link, and a run is written into its own directory only"
                do = "put the folder or file itself there, or copy the run with `cp -rL`"
                raise CheckpointError(what, got=f"a link to '{os.readlink(path)}'", do=do)

    def check_writable(self) -> None:
        """Refuse a directory that cannot be written or has no room before any work is done, and leave nothing there.

        Raises:
            CheckpointError: the directory cannot be used, or a part of it is a link; the error names it and the reason.
        """
        self.refuse_links()
        folders = [self.path, self.checkpoints] if self.checkpoints.is_dir() else [self.path]
        for folder in folders:
            there = next(parent for parent in (folder, *folder.parents) if os.path.lexists(parent))
            try:
                with tempfile.TemporaryFile(dir=there) as file:
                    file.write(bytes(1 << 16))  # as much as must fit on the disk for a run to begin
            except OSError as error:
                what, got = f"the run directory '{self.path}' cannot be written", f"'{there}': {error.strerror}"
                do = "set `paths.runs` to a folder that can be written and has room, or mend this one"
                raise CheckpointError(what, got=got, do=do) from error

    def is_started(self) -> bool:
        """Return whether there is a checkpoint to continue from, even if it is a link that leads nowhere."""
        return os.path.lexists(self.last) or os.path.lexists(self.interrupted)

    def predictions(self, part: str) -> Path:
        """Return the path of the measured and predicted phenotypes of one part."""
        return self.path / f"predictions_{part}.csv"

    def checkpoint(self, name: str) -> Path:
        """Return the path of a checkpoint that is given by name or path.

        Raises:
            CheckpointError: the checkpoint does not exist.
        """
        path = self.checkpoints / f"{name}.ckpt" if name in CHECKPOINTS else Path(name)
        if not path.is_file():
            there = sorted(p.stem for p in self.checkpoints.glob("*.ckpt"))
            expected = f"one of {listing(there)}" if there else "a checkpoint; this run has none yet"
            do = None if there else "train first with `dglcell train`"
            raise CheckpointError(f"checkpoint '{path}' not found", expected=expected, do=do)
        return path


class EpochLog:
    """An epoch log appends epochs to ``metrics.jsonl`` and describes each in one line.

    The line of the best epoch so far, by the metric of the checkpoint that is reported, ends with ``*``.
    """

    def __init__(self, path: Path, epochs: int, checkpoint: str = "best_loss") -> None:
        self.path, self.epochs = path, epochs
        self.figure, self.mode = CHECKPOINTS[checkpoint]

    def rewind(self, epoch: int) -> None:
        """Forget the epochs from ``epoch`` on, because a resumed run writes them again; keep each earlier one once."""
        if not os.path.lexists(self.path):
            return
        last = {row["epoch"]: row for row in self.read() if row["epoch"] < epoch}
        kept = [last[number] for number in sorted(last)]
        with atomic_file(self.path) as partial:
            partial.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")

    def read(self) -> list[dict[str, Any]]:
        """Return all epochs so far, without a last line that a crash has torn."""
        if not os.path.lexists(self.path):
            return []
        try:
            lines = self.path.read_bytes().split(b"\n")
        except OSError as error:
            raise self._damaged("", error.strerror) from error
        rows: list[dict[str, Any]] = []
        for number, line in enumerate(lines, start=1):
            try:
                row = parse_json(line)
                check_fields(row, {"": dict[str, Number | None], "epoch": Whole})
            except UnreadableError as error:
                if number == len(lines):
                    break
                start = ascii(line[:60].decode(errors="replace"))[1:-1]
                raise self._damaged(f": line {number} is no record of an epoch", start) from error
            rows.append(row)
        return rows

    def _damaged(self, where: str, got: object) -> CheckpointError:
        do = "remove the line, or put the file back; then run the `dglcell train` command of the run again"
        expected = "an object of numbers a line, `epoch` among them"
        return CheckpointError(f"the record '{self.path}' is damaged{where}", got=got, expected=expected, do=do)

    def write(self, epoch: int, step: int, metrics: dict[str, float]) -> str:
        """Append an epoch, forget earlier records of it and of later ones, and return a line to print."""
        rows = self.read()
        if any(row["epoch"] >= epoch for row in rows):
            self.rewind(epoch)
            rows = self.read()
        sign = 1 if self.mode == "max" else -1
        earlier = [sign * r[self.figure] for r in rows if self.figure is not None and r.get(self.figure) is not None]
        is_best = sign * metrics.get(self.figure or "", math.nan) > max(earlier, default=-math.inf)
        row = {"epoch": epoch, "step": step, **{k: v if math.isfinite(v) else None for k, v in metrics.items()}}
        refuse_if_taken_over(self.path)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        validation = ""
        if "validation/loss" in metrics:
            is_class = "validation/average_precision" in metrics
            value = metrics.get(f"validation/{'average_precision' if is_class else 'pearson'}", math.nan)
            score = f"{'AP' if is_class else 'r'} {value:.4f}".replace("nan", "undefined")
            validation = f", validation {metrics['validation/loss']:.4f}  {score}"
        seconds = [r["seconds"] for r in [*rows, row] if r.get("seconds") is not None]
        left = timedelta(seconds=round(sum(seconds) / len(seconds) * (self.epochs - epoch - 1)))
        return (
            f"epoch {epoch + 1:>4}/{self.epochs}  loss {metrics['train/loss']:.4f}{validation}  "
            f"{metrics['seconds']:.1f} s{f', {left} left' if left else ''}{'  *' if is_best else ''}"
        )


def environment(command: str) -> dict[str, Any]:
    """Return the versions of everything that affects a run, as plain containers."""
    import torch  # here, so that a configuration is read without it

    kind = platform.system(), platform.machine(), "".join(platform.libc_ver())  # which decide what is installed
    packages = ("torch", "dgl", "pytorch-lightning", "numpy", "scipy", "omegaconf", "lmdb", "cobra", "wandb")
    return {
        "dglcell": dglcell.__version__,
        "command": command,
        "python": platform.python_version(),
        "platform": "-".join(filter(None, kind)),
        "packages": {name: version_of(name) for name in packages},
        "git": git_state(Path(dglcell.__file__).parent),
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] or ["cpu"],
    }


def version_of(package: str) -> str | None:
    """Return the installed version of one package, or None where it is missing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return the commit and whether files differ from it; None without git, or where no repository keeps the folder."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", ".")
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return None


def write_usage(
    directory: RunDirectory, device: torch.device, peak: int | None, processes: int, seconds: float, start: int
) -> None:
    """Write ``usage.json``: epochs and their seconds together, time of the whole run, and peaks of memory in bytes.

    For a continued run peaks are those of the last part, from the epoch ``start`` on; they are null where another
    process trained that part. The seconds are those that this process has taken.
    """
    epochs = EpochLog(directory.metrics, 0).read()
    of_epochs = [(row["epoch"], row.get("seconds") or 0.0) for row in epochs]
    about = {
        "device": str(device),
        "epochs": len(epochs),
        "seconds": sum(took for _, took in of_epochs),
        "peak_memory_bytes": peak,
        "processes": processes,
        "wall_seconds": sum(took for epoch, took in of_epochs if epoch < start) + seconds,
        "peak_resident_bytes": None if peak is None else resident_peak(),
    }
    write_json(directory.usage, about)


def memory_peak(device: torch.device) -> int:
    """Return the most bytes that this process has had: on a GPU of its allocations there, else of its resident set."""
    import torch

    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else resident_peak()
