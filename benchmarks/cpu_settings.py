"""Compare threads, waiting, precision and compilation on this machine, quiet and busy, and what ``auto`` takes.

``python -m benchmarks.cpu_settings OUT [--experiment NAME] [--busy N …] [key=value …]`` trains the experiment as
``dglcell train`` does, once with each setting and once with ``auto``, and ends each training after a few epochs. The
time is the median of the epochs after the first. Busy processes compute matrix products with one thread each. Rows
that OUT has already are not measured again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dglcell.config.read import experiment_file, load_config
from dglcell.files.atomic import write_json
from dglcell.machine.processor import cores, processor_name
from dglcell.runs.usage import environment

EPOCHS = 3
PLANNED = 200
"""Each training plans so many epochs, enough that ``auto`` times other forms of layers."""

PATIENCE = 600.0
"""A training is ended after so many seconds, wherever it is."""

BUSY = "import torch; torch.set_num_threads(1); a = torch.ones(400, 400)\nwhile True: a @ a"
FORMS = {
    "float32": ("32-true", "false"),
    "float32, compiled": ("32-true", "true"),
    "bfloat16, compiled": ("bf16", "true"),
}


@dataclass(frozen=True)
class Choice:
    """A choice is one setting.

    Attributes:
        threads: number of threads, or auto.
        waiting: active or passive; auto for what the command chooses.
        form: form of layers, a key of ``FORMS``; auto for what the command chooses.
        processes: number of processes, which each take a part of every batch.
    """

    threads: str
    waiting: str
    form: str
    processes: int = 1

    def keys(self, batch: int) -> list[str]:
        """Return the overrides for the command line, for batches of so many strains."""
        precision, compiled = FORMS.get(self.form, ("auto", "auto"))
        parts = [f"trainer.devices={self.processes}", f"data.batch_size={batch // self.processes}"]
        layers = [f"trainer.precision={precision}", f"model.compile={compiled}"]
        return [f"trainer.threads={self.threads}", *layers, *(parts if self.processes > 1 else [])]

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the process."""
        plain = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        return plain if self.waiting == "auto" else {**plain, "OMP_WAIT_POLICY": self.waiting.upper()}


AUTO = Choice("auto", "auto", "auto")


def choices() -> list[Choice]:
    """Return all settings; the way of waiting is not varied for one thread, which never waits."""
    found = [Choice("1", "passive", form) for form in FORMS]
    if cores() > 1:
        found.append(Choice("1", "passive", "float32", processes=cores()))
    waits = itertools.product([str(cores())] if cores() > 1 else [], ("active", "passive"), FORMS)
    return [*found, *(Choice(*one) for one in waits), AUTO]


@contextmanager
def busy(number: int) -> Iterator[None]:
    """Run so many processes that compute beside what is measured."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        time.sleep(3.0 if number else 0.0)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure(choice: Choice, experiment: str, overrides: list[str], folder: Path) -> dict[str, Any]:
    """Measure the seconds of an epoch, and return them with what the training reported about its choices."""
    runs = Path(tempfile.mkdtemp(dir=folder))
    fixed = [
        f"trainer.epochs={PLANNED}",
        "null_models=false",
        "plot=false",
        f"paths.runs={runs}",
        f"paths.data={folder}",
    ]
    batch = load_config(experiment_file(experiment), overrides).data.training_batch
    command = [sys.executable, "-m", "dglcell", "train", experiment, *fixed, *choice.keys(batch), *overrides]
    with (runs / "log").open("w") as log:
        process = subprocess.Popen(
            command, env=choice.environment(), stderr=log, stdout=subprocess.DEVNULL, start_new_session=True
        )
        began = time.monotonic()
        epochs: list[float] = []
        while len(epochs) < EPOCHS and process.poll() is None and time.monotonic() - began < PATIENCE:
            time.sleep(0.2)
            epochs = _epochs(runs)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # ends the processes that it started, too
        process.wait()
    said = re.findall(r"^(?:layers in .*|\d+ threads? \(measured.*)$", (runs / "log").read_text(), re.MULTILINE)
    if len(epochs) < 2:
        return {**asdict(choice), "seconds": None, "said": said}
    return {**asdict(choice), "seconds": round(statistics.median(epochs[1:]), 3), "said": said}


def _epochs(runs: Path) -> list[float]:
    lines = [line for file in runs.glob("**/metrics.jsonl") for line in file.read_text().splitlines()]
    return [float(json.loads(line)["seconds"]) for line in lines if line.endswith("}")]


def main() -> None:
    """Measure all settings beside each number of busy processes, and write a row at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--experiment", default="quickstart")
    parser.add_argument("--busy", type=int, action="append", metavar="N", help="busy processes (default: 0, 1 and 2)")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    options = parser.parse_intermixed_args()
    beside = options.busy or [0, 1, 2]
    words = ["--experiment", options.experiment, *(f"--busy {number}" for number in beside), *options.overrides]
    about = environment(f"python -m benchmarks.cpu_settings OUT {' '.join(words)}") | {"processor": processor_name()}
    rows: list[dict[str, Any]] = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        for number in beside:
            with busy(number):
                for choice in choices():
                    if any({"busy": number, **asdict(choice)}.items() <= row.items() for row in rows):
                        continue
                    row = measure(choice, options.experiment, options.overrides, Path(folder))
                    rows.append({"busy": number, **row})
                    print(json.dumps(rows[-1]), flush=True)
                    write_json(options.out, {"environment": about | {"cores": cores()}, "rows": rows})
            print(_verdict([row for row in rows if row["busy"] == number], number), flush=True)


def _verdict(rows: list[dict[str, Any]], number: int) -> str:
    auto, best = rows[-1]["seconds"], min((row["seconds"] for row in rows[:-1] if row["seconds"]), default=None)
    ratio = "nothing" if not auto or not best else f"{auto / best:.2f} times the best setting's time"
    return f"auto took {ratio} beside {number} busy processes"


if __name__ == "__main__":
    main()
