"""Measure training steps on a GPU beside PyTorch Geometric, in one command of a few minutes, and run the GPU's tests.

    python -m benchmarks.gpu_once OUT [--minutes 12] [--device cuda|cpu] [--tiny] [--only STAGE ...]

Each stage is a process with a limit of time, so that neither a crash of CUDA nor a slow compiler takes more than its
own figures. A stage writes after each figure: ``OUT/results.json`` has all of them at any moment, and ``OUT/table.md``
is printed at the end. Nothing else should run on the GPU meanwhile.

A figure is the median of at least five rounds of a quarter of a second, taken in turn with those of the other methods.
Where the middle half of the rounds is wider than 5 % of the median, five more are taken, once. Nothing is thrown away:
median, least, largest and all rounds are written, and ``noisy`` says that they scatter.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import math
import os
import pickle
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.cells import GENES, generated_cell
from benchmarks.methods import Method, build_ours
from benchmarks.workload import Workload, random_workload
from dglcell.files.atomic import write_json
from dglcell.graph.cell_graph import CellGraph
from dglcell.kernels import row_chain
from dglcell.models.config import HeteroCellConfig
from dglcell.optimizers import OptimizerConfig, make_optimizer

LIMITS = {"smoke": 90, "steps": 150, "large": 90, "pairwise": 120, "small": 60, "predict": 60, "tests": 400}
"""Stages, and the seconds that each may take."""

TESTS = ["tests/gpu", "tests/kernels/test_spmm.py", "tests/models/test_oracle.py"]

ROUNDS, MORE_ROUNDS, ROUND_SECONDS, NOISY = 5, 5, 0.25, 0.05
SHARED = {"hidden": 64, "layers": 3, "conv": "gin", "metabolism": False, "dropout": 0.0, "local_heads": 8}
MODELS: dict[str, dict[str, Any]] = {
    "080": {**SHARED, "gin_layers": 2, "cross_relation": "sum", "local_head": False, "combination": "none"},
    "082": {**SHARED, "gin_layers": 4, "cross_relation": "pairwise_interaction", "cross_relation_norm": "layer"},
}
"""Models of 669,917 and 1,781,187 parameters, over 6,607 genes and nine networks."""

PEER, COPIES = "PyG, shared graph", "PyG, copies of the graph"


# The parent starts the stages, watches their time, and collects what they write.


def main(words: list[str] | None = None) -> int:
    """Run the stages that are asked for, or one stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=12.0, help="after which everything has ended (default: 12)")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="tiny cells and no limits of time, for a rehearsal")
    parser.add_argument("--only", nargs="+", choices=list(LIMITS), metavar="STAGE", help=", ".join(LIMITS))
    parser.add_argument("--tests", nargs="+", default=TESTS, help="of `tests`")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.stage:
        STAGES[options.stage](Stage(options.out, options.device, options.tiny))
        return 0
    return parent(options)


def parent(options: argparse.Namespace) -> int:
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {"about": about(), "stages": {}}
    work = Path(tempfile.mkdtemp(prefix="gpu_once-"))
    for name in options.only or LIMITS:
        left = 60 * options.minutes - (time.monotonic() - began) - 3
        limit = 3600.0 if options.tiny else min(LIMITS[name], left)
        record: dict[str, Any] = {"status": f"not begun: {left:.0f} s left"}
        if limit > 10:
            started = time.monotonic()
            record = run_tests(options, limit) if name == "tests" else run_stage(options, name, work, limit)
            record["seconds"] = round(time.monotonic() - started, 1)
        content["stages"][name] = record
        content["about"]["seconds"] = round(time.monotonic() - began, 1)
        write_json(options.out / "results.json", content)
        print(f"[{time.monotonic() - began:5.0f} s] {name}: {record['status']}", flush=True)
    text = table(content)
    (options.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def about() -> dict[str, Any]:
    """Return what the figures were taken on."""
    packages = ("torch", "triton", "torch-geometric", "pytorch-lightning", "numpy")
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "commit": asked("git", "rev-parse", "HEAD"),
        "gpu": asked("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"),
        "versions": {name: version(name) for name in packages},
        "rule": (__doc__ or "").rpartition("\n\n")[2].replace("\n", " ").strip(),
    }


def asked(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return None


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def run_stage(options: argparse.Namespace, name: str, work: Path, limit: float) -> dict[str, Any]:
    file = work / f"{name}.json"
    command = [sys.executable, "-m", "benchmarks.gpu_once", str(file), "--stage", name, "--device", options.device]
    status = run([*command, *(["--tiny"] if options.tiny else [])], options.out / f"{name}.log", limit)
    return {"status": status, "found": json.loads(file.read_text()) if file.exists() else {}}


def run_tests(options: argparse.Namespace, limit: float) -> dict[str, Any]:
    """Run the GPU's tests; the log is read line by line, so that a stop leaves counts."""
    workers = ["-n", str(min(14, os.cpu_count() or 1))] if version("pytest-xdist") and not options.tiny else []
    command = [sys.executable, "-m", "pytest", "-v", "--tb=short", "-p", "no:cacheprovider", *workers, *options.tests]
    log = options.out / "tests.log"
    status = run(command, log, limit)
    lines = log.read_text(errors="replace").splitlines()
    words = ("PASSED", "FAILED", "SKIPPED", "ERROR")
    counts = {
        word.lower(): sum(f" {word} " in f" {x} " and "::" in x and not x.startswith(word) for x in lines)
        for word in words
    }
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return {"status": status, "found": {"tests": [{**counts, "failures": failed[:60]}]}}


def run(command: list[str], log: Path, limit: float) -> str:
    """Run a process, and stop it with all that it started at its limit."""
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(limit)
            return "done" if code == 0 else f"ended with {code}, see {log.name}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "stopped at its limit"


def table(content: dict[str, Any]) -> str:
    """Return all figures as Markdown."""
    lines = [f"# {content['about']['gpu'] or 'CPU'}, commit {content['about']['commit']}"]
    for name, record in content["stages"].items():
        lines.append(f"\n## {name}: {record['status']}, {record.get('seconds', '')} s\n")
        for kind, rows in record.get("found", {}).items():
            if kind == "rows":
                columns = ("method", "batch", "ms", "least_ms", "largest_ms", "strains_per_s", "host_ms", "gb", "error")
                lines += [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
                lines += [f"| {' | '.join(short(row.get(column)) for column in columns)} |" for row in rows]
            else:
                lines += [
                    f"- {kind}: " + "; ".join(f"{key} {short(value)}" for key, value in row.items()) for row in rows
                ]
    return "\n".join(lines) + "\n"


def short(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value[:12]))
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


# A stage is a process with a GPU, its results, and methods that take rounds in turn.


@dataclass
class Stage:
    """Hold the results of a stage, written after each of them."""

    file: Path
    device: str
    tiny: bool
    found: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    contenders: list[Contender] = field(default_factory=list)

    def add(self, kind: str, **row: Any) -> dict[str, Any]:
        self.found.setdefault(kind, []).append(row)
        self.write()
        return row

    def write(self) -> None:
        write_json(self.file, self.found)

    def note(self, kind: str, work: Callable[[], dict[str, Any]]) -> None:
        """Add a row, or why there is none."""
        try:
            self.add(kind, **work())
        except Exception as error:  # the rest is measured all the same
            traceback.print_exc()
            self.add(kind, failed=f"{type(error).__name__}: {str(error)[:300]}")
        self.free()

    def free(self) -> None:
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def seconds(self, work: Callable[[], object], number: int = 1) -> float:
        """Return the seconds of one work, of several in a row, until the device has done them."""
        self.wait()
        began = time.perf_counter()
        for _ in range(number):
            work()
        self.wait()
        return (time.perf_counter() - began) / number

    def enter(
        self, method: str, batch: int, build: Callable[[], Callable[[], object]], **more: Any
    ) -> Contender | None:
        """Build a step, take it a few times, and let it take part in the rounds.

        Args:
            build: makes the step; its first call compiles.
        """
        row: dict[str, Any] = {"method": method, "batch": batch, **more}
        try:
            self.free()
            before = torch.cuda.memory_allocated() if self.device == "cuda" else 0
            began = time.perf_counter()
            step = build()
            step()
            self.wait()
            row["first_s"] = time.perf_counter() - began
            if self.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            once = min(self.seconds(step) for _ in range(2))
            if self.device == "cuda":
                row["gb"] = (torch.cuda.max_memory_allocated() - before) / 1e9
            row["host_ms"] = 1e3 * self._host_seconds(step)
            number = 1 if self.tiny else max(1, min(50, math.ceil(ROUND_SECONDS / once)))
            contender = Contender(self, self.add("rows", **row), step, number)
            contender.measure()
            self.contenders.append(contender)
            return contender
        except Exception as error:  # the rest is measured all the same
            traceback.print_exc()
            self.add("rows", **row, failed=f"{type(error).__name__}: {str(error)[:200]}")
            return None

    def _host_seconds(self, step: Callable[[], object]) -> float:
        """Return the seconds until the host has given all of a step to an idle device."""
        found = []
        for _ in range(3):
            self.wait()
            began = time.perf_counter()
            step()
            found.append(time.perf_counter() - began)
        return min(found)

    def race(self) -> None:
        """Take rounds in turn: five, and five more of those that scatter; then forget the methods."""
        for number, chosen in ((ROUNDS - 1, lambda row: True), (MORE_ROUNDS, lambda row: row["noisy"])):
            racing = [contender for contender in self.contenders if chosen(contender.row)]
            for _ in range(number):
                for contender in racing:
                    contender.measure()
                self.write()
        self.contenders.clear()
        self.free()


@dataclass
class Contender:
    """Hold a method that takes rounds in turn with others."""

    stage: Stage
    row: dict[str, Any]
    step: Callable[[], object]
    number: int
    rounds: list[float] = field(default_factory=list)

    def measure(self) -> None:
        self.rounds.append(1e3 * self.stage.seconds(self.step, self.number))
        ordered, median = sorted(self.rounds), statistics.median(self.rounds)
        quarter = len(ordered) // 4
        middle = ordered[len(ordered) - 1 - quarter] - ordered[quarter]
        self.row |= {
            "ms": median,
            "least_ms": ordered[0],
            "largest_ms": ordered[-1],
            "noisy": middle > NOISY * median,
            "strains_per_s": 1e3 * self.row["batch"] / median,
            "rounds_ms": [round(x, 4) for x in self.rounds],
        }


# What is measured.


def workload(stage: Stage, model: str, batch: int, **more: Any) -> Workload:
    """Make random strains of three deletions on a generated cell of yeast's size."""
    smaller = {"hidden": 16, "layers": 2, "local_heads": 4} if stage.tiny else {}
    config = HeteroCellConfig(**{**MODELS[model], **smaller, **more})
    return random_workload(cell_graph(stage), config, batch, 3, seed=0).to(stage.device)


def cell_graph(stage: Stage) -> CellGraph:
    """Return the generated cell graph, which is made once for all stages."""
    file = stage.file.with_name("cell.pickle")
    if not file.exists():
        file.write_bytes(pickle.dumps(generated_cell(scale=0.004 if stage.tiny else 1.0)))
    found: CellGraph = pickle.loads(file.read_bytes())
    return found


def ours(stage: Stage, work: Workload, *, one_kernel: bool = True, **how: Any) -> Method:
    row_chain.DEVICES = ("cuda",) if one_kernel else ()
    kernel = "triton" if stage.device == "cuda" else "csr"
    return build_ours(work, stage.device, **{"strategy": "node_mask", "kernel": kernel, **how})


def pyg(stage: Stage, work: Workload, form: str) -> Method:
    from benchmarks.pyg import build_pyg

    return build_pyg(work, stage.device, form=form)


def step_of(stage: Stage, method: Method, work: Workload, *, autocast: bool = False) -> Callable[[], Tensor]:
    """Return a full training step, with the optimiser that a run makes."""
    weights = [weight for weight in method.parameters() if weight.requires_grad]
    optimizer = make_optimizer(OptimizerConfig(lr=1e-4), weights)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(stage.device, torch.bfloat16, enabled=autocast):
            loss = method.loss(work.genotypes, work.targets)
        loss.backward()
        optimizer.step()
        return loss

    return step


def recorded(stage: Stage, step: Callable[[], object]) -> Callable[[], object]:
    """Return the step as one CUDA graph, as a run launches it; on a CPU the step itself."""
    if stage.device != "cuda":
        return step
    there = torch.cuda.Stream()
    there.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(there):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(there)
    stage.free()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        step()
    return graph.replay


def outcome(stage: Stage, method: Method, work: Workload, autocast: bool = False) -> dict[str, Tensor]:
    """Return predictions and all gradients, in float64 on the host."""
    method.zero_grad(set_to_none=True)
    with torch.autocast(stage.device, torch.bfloat16, enabled=autocast):
        predicted = method(work.genotypes)
        loss = torch.nn.functional.mse_loss(predicted.to(work.targets.dtype), work.targets)
    loss.backward()
    weights = getattr(method, "weights", None) or method
    gradients = {n: p.grad.double().cpu() for n, p in weights.named_parameters() if p.grad is not None}
    method.zero_grad(set_to_none=True)
    return {"predictions": predicted.detach().double().cpu(), **gradients}


def errors(found: dict[str, Tensor], right: dict[str, Tensor]) -> dict[str, float]:
    """Return the errors of predictions and of all gradients together, relative to their length."""
    names = [name for name in right if name != "predictions"]
    apart, whole = ([torch.cat([x.flatten() for x in parts]) for parts in two] for two in (
        ([found["predictions"] - right["predictions"]], [found[n] - right[n] for n in names]),
        ([right["predictions"]], [right[n] for n in names]),
    ))  # fmt: skip
    return {
        "error": float(apart[0].norm() / whole[0].norm()),
        "gradient_error": float(apart[1].norm() / whole[1].norm()),
    }


def profiled(stage: Stage, step: Callable[[], object]) -> dict[str, Any]:
    """Return the launches of a step, and the twenty kernels that take the most time."""
    from torch.profiler import ProfilerActivity, profile

    with profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if stage.device == "cuda" else [])]
    ) as found:
        step()
        stage.wait()
    with tempfile.TemporaryDirectory() as folder:
        found.export_chrome_trace(f"{folder}/trace.json")
        events = json.loads(Path(folder, "trace.json").read_text())["traceEvents"]
    taken: dict[str, list[float]] = {}
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and "dur" in event:
            taken.setdefault(event["name"], []).append(event["dur"] / 1e3)
    rows = sorted(((sum(ms), len(ms), name) for name, ms in taken.items()), reverse=True)
    return {
        "launches": sum(count for _, count, _ in rows),
        "kernel_ms": sum(ms for ms, _, _ in rows),
        "top": [f"{ms:.3f} ms x{count} {re.sub(r'<.*', '', name)[:80]}" for ms, count, name in rows[:20]],
    }


# The stages.


def smoke(stage: Stage) -> None:
    """Compare with float64, and repeats bit by bit, on the graph of yeast's size."""
    for model in MODELS:
        work = workload(stage, model, 2 if stage.tiny else 4, hidden=16, layers=2, local_heads=4)
        wide = work.double()
        right = outcome(stage, ours(stage, wide, kernel="csr", one_kernel=False).double(), wide)
        for kernel, half, one_kernel in (("triton", False, False), ("triton", False, True), ("triton", True, True)):
            if stage.device == "cuda":
                made = ours(stage, work, kernel=kernel, half=half, one_kernel=one_kernel)
                runs = [outcome(stage, made, work) for _ in range(3)]
                same = all(bool((runs[0][name] == one[name]).all()) for one in runs for name in one)
                about_it = {"model": model, "half": half, "one_kernel": one_kernel, "the_same_bits": same}
                stage.add("errors", **about_it, **errors(runs[0], right))
    stage.add("done", models=list(MODELS))


def steps(stage: Stage) -> None:
    """080 with 28 strains: methods in turn, with errors against float64."""
    batch = 2 if stage.tiny else 28
    work = workload(stage, "080", batch)
    wide = work.double()
    right = outcome(stage, ours(stage, wide, kernel="csr", one_kernel=False).double(), wide)

    def enter(name: str, build: Callable[[], Method], autocast: bool = False, graph: bool = True) -> None:
        found: dict[str, float] = {}

        def step() -> Callable[[], object]:
            method = build()
            found.update(errors(outcome(stage, method, work, autocast), right))
            return step_of(stage, method, work, autocast=autocast)

        contender = stage.enter(name, batch, step)
        if contender is not None:
            contender.row |= found
            if graph:
                whole = stage.enter(f"{name}, one CUDA graph", batch, lambda: recorded(stage, contender.step))
                if whole is not None:
                    whole.row |= found

    enter("bfloat16 differences", lambda: ours(stage, work, half=True))
    enter("float32", lambda: ours(stage, work))
    enter(f"{PEER}, bfloat16 autocast", lambda: pyg(stage, work, "spmm"), autocast=True, graph=False)
    enter(f"{PEER}, float32", lambda: pyg(stage, work, "spmm"), graph=False)
    enter(f"{COPIES}, float32", lambda: pyg(stage, work, "replicated"), graph=False)
    first = stage.contenders[0].step
    stage.race()
    stage.note("profile", lambda: profiled(stage, first))
    stage.note("recorded", lambda: same_steps(stage, work))


def same_steps(stage: Stage, work: Workload) -> dict[str, Any]:
    """Compare the weights after recorded steps with those after as many steps one by one."""
    ends = []
    for whole in (False, True):
        method = ours(stage, work, half=True)
        step = step_of(stage, method, work)
        for _ in range(0 if whole and stage.device == "cuda" else 3):  # as many as recording takes
            step()
        again = recorded(stage, step) if whole else step
        for _ in range(5):
            again()
        stage.wait()
        ends.append(torch.cat([weight.detach().flatten() for weight in method.parameters()]))
    return {"equal_bits": bool((ends[0] == ends[1]).all())}


def large(stage: Stage) -> None:
    """080 with 256 strains; the peer with as many as fit."""
    batch = 4 if stage.tiny else 256
    work = workload(stage, "080", batch)
    contender = stage.enter("bfloat16 differences", batch, partial(half_step, stage, work))
    if contender is not None:
        stage.enter("bfloat16 differences, one CUDA graph", batch, partial(recorded, stage, contender.step))
    stage.race()
    for number in (n for n in (batch, 128, 64) if n <= batch):
        smaller = workload(stage, "080", number)
        if stage.enter(f"{PEER}, bfloat16 autocast", number, partial(peer_step, stage, smaller)) is not None:
            break
    stage.race()


def half_step(stage: Stage, work: Workload) -> Callable[[], object]:
    return step_of(stage, ours(stage, work, half=True), work)


def peer_step(stage: Stage, work: Workload) -> Callable[[], object]:
    return step_of(stage, pyg(stage, work, "spmm"), work, autocast=True)


def pairwise(stage: Stage) -> None:
    """082 with 28 strains."""
    batch = 2 if stage.tiny else 28
    work = workload(stage, "082", batch)
    contender = stage.enter("bfloat16 differences", batch, partial(half_step, stage, work))
    if contender is not None:
        stage.enter("bfloat16 differences, one CUDA graph", batch, partial(recorded, stage, contender.step))
    stage.enter(f"{PEER}, bfloat16 autocast", batch, partial(peer_step, stage, work))
    stage.race()


def small(stage: Stage) -> None:
    """A cell of 137 genes, as of E. coli core, where launches decide and not the GPU."""
    cell = generated_cell(scale=137 / GENES)
    for batch in (8,) if stage.tiny else (128, 1024):
        config = HeteroCellConfig(hidden=32, layers=2, metabolism=False, local_heads=4)
        work = random_workload(cell, config, batch, 3, seed=0).to(stage.device)
        for half in (False, True):
            name = "bfloat16 differences" if half else "float32"
            method = ours(stage, work, half=half)
            contender = stage.enter(name, batch, partial(step_of, stage, method, work))
            if contender is not None:
                stage.enter(f"{name}, one CUDA graph", batch, partial(recorded, stage, contender.step))
    stage.race()


def predict(stage: Stage) -> None:
    """Predictions of triples by 080 and by a set operator, without reading and writing of files."""
    from dglcell.graph.resident import ResidentCell
    from dglcell.models.config import SetOperatorConfig
    from dglcell.models.model import make_model

    batch = 8 if stage.tiny else 1024
    work = workload(stage, "080", batch)
    local = SetOperatorConfig(hidden=64, layers=2)

    def forward(model: Any) -> Callable[[], object]:
        model = model.eval()

        def step() -> object:
            with torch.inference_mode():
                return model(work.genotypes).phenotypes

        return step

    for half in (True, False):
        name = f"080, {'bfloat16 differences' if half else 'float32'}"
        stage.enter(name, batch, partial(forward, ours(stage, work, half=half).weights))
    stage.enter(
        "set_operator, float32",
        batch,
        lambda: forward(make_model(local, ResidentCell.of(work.cell), 1).to(stage.device)),
    )
    stage.race()


STAGES: dict[str, Callable[[Stage], None]] = {
    "smoke": smoke,
    "steps": steps,
    "large": large,
    "pairwise": pairwise,
    "small": small,
    "predict": predict,
}

if __name__ == "__main__":
    sys.exit(main())
