"""Examine what works on this machine: versions, devices, kernels, optional packages."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass

import torch

from dglcell.errors import MissingDependencyError, count
from dglcell.files.atomic import RAW_VARIABLE, raw_folder
from dglcell.graph.resident_graph import ResidentRelation, dgl_runs_on, import_dgl
from dglcell.kernels.spmm import KERNELS, default_kernel, kernels_on, spmm
from dglcell.machine import allotted_cores, cores, processor_name
from dglcell.perturbation import DGL_STRATEGIES
from dglcell.runs import version_of


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
        _dgl(),
        Finding("CPU", f"{processor_name()}, {count(cores(), 'core')}, {allotted_cores()} of them allotted"),
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
    needed = dict.fromkeys(("torch", "numba", "pytorch-lightning", "cobra", "lmdb", "omegaconf"), "dglcell")
    extras = {"wandb": "dglcell[wandb]", "pyarrow": "dglcell[parquet]", "optuna": "dglcell[tune]"}
    for name, package in {**needed, **extras}.items():
        version, do = version_of(name), f"pip install '{package}'"
        if version is None:
            ok, state = (False, "not here") if name in needed else (None, f"not here; optional: {do}")
            findings.append(Finding(name, state, ok, do))
            continue
        bad = name == "pytorch-lightning" and version in ("2.6.2", "2.6.3")
        do = "this release was malicious: uninstall it, then pip install 'pytorch-lightning>=2.6.4'"
        findings.append(Finding(name, version, ok=not bad, do=do))
    return findings


def _dgl() -> Finding:
    try:
        return Finding("dgl", str(import_dgl().__version__), ok=True)
    except MissingDependencyError as error:
        without = f"without it there are no strategies {' and '.join(DGL_STRATEGIES)}"
        return Finding("dgl", f"not here ({error.__cause__}): {without}")


def _gpu() -> Finding:
    if not torch.cuda.is_available():
        return Finding("GPU", "none that torch can use")
    names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    dgl = "DGL runs on it" if dgl_runs_on("cuda") else "DGL does not run on it"
    return Finding("GPU", f"{names}; {dgl}; `kernel: auto` is {default_kernel('cuda')}", ok=True)


def _kernel(name: str, device: str) -> Finding:
    what = f"kernel {name} on {device}"
    if name not in kernels_on(device):
        missing = name == "triton" and device == "cuda"
        other = "GPUs" if device == "cpu" else "CPUs"
        return Finding(what, "Triton is not installed" if missing else f"is for {other} only")
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
