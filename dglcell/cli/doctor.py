"""Examine what works on this machine: versions, devices, kernels, optional packages."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import sys
import time
from dataclasses import dataclass

import torch

from dglcell.config.read import experiment_file, load_config
from dglcell.errors import MissingDependencyError, count
from dglcell.files.atomic import RAW_VARIABLE, raw_folder
from dglcell.graph.cell import build_cell
from dglcell.graph.resident import ResidentCell
from dglcell.graph.resident_graph import ResidentRelation, dgl_runs_on, import_dgl
from dglcell.kernels.spmm import KERNELS, default_kernel, runs_on, spmm
from dglcell.machine.devices import threads
from dglcell.machine.processor import allotted_cores, cores, processor_name
from dglcell.models.model import make_model
from dglcell.perturbation import DGL_STRATEGIES
from dglcell.perturbation.genotype import GenotypeBatch

EXTRAS = {"wandb": "wandb", "parquet": "pyarrow", "tune": "optuna"}
"""This maps each extra to the package in it."""

OTHERS = {"cpu": "GPUs", "cuda": "CPUs"}
"""This maps each device to the other devices, on which a kernel runs that does not run on this one."""

TIMED_STEPS = 5
"""Training steps that are timed; the first ones warm up."""

MALICIOUS_LIGHTNING = ("2.6.2", "2.6.3")


@dataclass(frozen=True)
class Finding:
    """A finding is one line of the doctor's report."""

    what: str
    state: str
    ok: bool | None = None  #: whether it works; None where it is only information
    do: str = ""


def examine() -> list[Finding]:
    """Examine everything, without using the network or writing a file."""
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    return [
        Finding("python", platform.python_version(), (3, 11) <= sys.version_info < (3, 14), "use Python 3.11 to 3.13"),
        *_packages(),
        Finding("CPU", f"{processor_name()}, {count(cores(), 'core')}, {allotted_cores()} of them allotted"),
        _quickstart(),
        _gpu(),
        *[_kernel(name, device) for device in devices for name in KERNELS],
        _raw(),
    ]


def format_findings(findings: list[Finding]) -> str:
    """Format findings as a table for the terminal."""
    signs = {True: "ok", False: "NO", None: "  "}
    width = max(len(finding.what) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{signs[finding.ok]}  {finding.what:<{width}}  {finding.state}")
        if finding.ok is False and finding.do:
            lines.append(f"    {'':<{width}}  → {finding.do}")
    return "\n".join(lines)


def _packages() -> list[Finding]:
    findings = []
    for name in ("torch", "numba", "pytorch-lightning", "cobra", "lmdb", "omegaconf"):
        version = importlib.metadata.version(name)
        bad = name == "pytorch-lightning" and version in MALICIOUS_LIGHTNING
        do = "this release was malicious: uninstall it, then pip install 'pytorch-lightning>=2.6.4'"
        findings.append(Finding(name, version, ok=not bad, do=do))
    findings.append(_dgl())
    for extra, name in EXTRAS.items():
        try:
            findings.append(Finding(name, importlib.metadata.version(name), ok=True))
        except importlib.metadata.PackageNotFoundError:
            findings.append(Finding(name, "not installed", ok=False, do=f"pip install 'dglcell[{extra}]'"))
    return findings


def _dgl() -> Finding:
    try:
        return Finding("dgl", str(import_dgl().__version__), ok=True)
    except MissingDependencyError as error:
        without = f"without it there are no strategies {' and '.join(DGL_STRATEGIES)}"
        return Finding("dgl", f"not here ({error.__cause__}): {without}")


def _quickstart() -> Finding:
    """Measure how long training steps of the quickstart take on the CPU, on random strains of its cell.

    The optimiser's step, some percent of the time, is left out.
    """
    config = load_config(experiment_file("quickstart"))
    cell = build_cell(config.cell)
    model = make_model(config.model, ResidentCell.of(cell), 1)
    generator = torch.Generator().manual_seed(0)
    orders = torch.rand(config.data.batch_size, len(cell.genes), generator=generator).argsort(1)
    strains = GenotypeBatch.from_lists([order[: 1 + i % 3].tolist() for i, order in enumerate(orders)])
    seconds = []
    try:
        with threads(None):
            for _ in range(TIMED_STEPS):
                began = time.perf_counter()
                model(strains).phenotypes.square().mean().backward()
                seconds.append(time.perf_counter() - began)
    except Exception as error:  # kernels raise errors of many types
        return Finding(
            "quickstart", f"cannot be trained: {error or type(error).__name__}", ok=False, do="install what is missing"
        )
    rate, used = len(orders) / statistics.median(seconds[-3:]), count(allotted_cores(), "thread")
    return Finding("quickstart", f"about {rate:,.0f} strains/s in training with {used}, now")


def _gpu() -> Finding:
    if not torch.cuda.is_available():
        return Finding("GPU", "none that torch can use")
    names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    dgl = "DGL runs on it" if dgl_runs_on("cuda") else "DGL does not run on it"
    kernel = default_kernel("cuda")
    return Finding("GPU", f"{names}; {dgl}; `kernel: auto` is {kernel}", ok=True)


def _kernel(name: str, device: str) -> Finding:
    what = f"kernel {name} on {device}"
    if not runs_on(name, device):
        missing = name == "triton" and device == "cuda"
        return Finding(what, "Triton is not installed" if missing else f"is for {OTHERS[device]} only")
    ends = torch.tensor([0, 1]), torch.tensor([1, 1])
    relation = ResidentRelation(("gene", "probe", "gene"), *ends, num_src=2, num_dst=2).to(device)
    try:
        result = spmm(relation, torch.eye(2, device=device), kernel=name).cpu()
    except Exception as error:  # e.g. numpy is too new for numba; compilers raise errors of many types
        return Finding(what, str(error), ok=False, do="install what is missing, or use another kernel")
    right = torch.equal(result, torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    return Finding(what, "gives the right sums" if right else f"WRONG: {result.tolist()}", ok=right)


def _raw() -> Finding:
    folder = os.environ.get(RAW_VARIABLE)
    if not folder:
        return Finding("raw files", f"{raw_folder()}; {RAW_VARIABLE}, which would name another folder, is not set")
    return Finding("raw files", folder, ok=os.path.isdir(folder), do=f"set {RAW_VARIABLE} to an existing folder")
