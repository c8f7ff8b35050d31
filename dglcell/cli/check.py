"""Implement ``check``, which compares every strategy with DGL, and ``doctor``, which says what works on a machine."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dglcell.cli.arguments import DEVICE, RUN, argument, positive, verb
from dglcell.errors import ConfigError, DglcellError, MissingDependencyError, aligned, count, printable

if TYPE_CHECKING:
    from torch import Tensor

    from dglcell.models.cell_model import CellModel
    from dglcell.models.model import StrainModel
    from dglcell.perturbation.genotype import GenotypeBatch

REFERENCE = "edge_subgraph"
EQUAL, DIFFERENT, SKIPPED = 0, 1, 3

TOLERANCE = 1e-10  # equal values differ by at most this share of the largest one, or of 1
BATCH = 16  # strains that are predicted at once: each has a graph of its own


@dataclass(frozen=True)
class Checked:
    """Hold what a strategy predicted, and what it took."""

    predicted: dict[str, Tensor]  #: what → [S, …] predictions in normalised units, their parts, and embeddings
    seconds: float  #: time of all strains

    def difference(self, reference: Checked) -> float:
        """Return the largest difference from what the reference predicts, as a share of the largest value or of 1."""
        pairs = [(of, self.predicted[what]) for what, of in reference.predicted.items()]
        return max(float((mine - of).abs().max()) / max(1.0, float(of.abs().max())) for of, mine in pairs)


@verb(
    "check",
    RUN[0],
    argument("--strains", type=positive, default=64, metavar="N", help="number of strains (default: 64)"),
    DEVICE,
)
def check(options: argparse.Namespace) -> int:
    """Compare predictions with those by DGL's own subgraphs.

    Strains are predicted in double precision by `dgl.edge_subgraph`, which really removes what they lose, and by every
    other strategy that runs here. For a run, strains are of its test part; where its store is gone, or for a trained
    model, they are drawn at random.

      dglcell check runs/quickstart/seed-0 --strains 128

    The exit status is 0 if all are equal, 1 if one is not, and 3 if nothing was compared, because DGL is not here.
    """
    from dglcell.graph.resident_graph import dgl_runs_on, import_dgl
    from dglcell.machine import check_device, threads
    from dglcell.models.cell_model import CellModel
    from dglcell.trained_models import find_run

    check_device(options.device)
    model, strains, whose = _model_and_strains(find_run(options.run_directory), options.strains)
    if not (isinstance(model, CellModel) and model.own_graphs):
        got, expected = f"`model.name: {model.config.name}`", "hetero_cell, or a model of your own derived from it"
        raise ConfigError("this model has no graphs of strains to check", got=got, expected=expected)
    if not dgl_runs_on(options.device):
        try:
            import_dgl()
            why = f"this build of DGL has no {options.device}"
        except MissingDependencyError as error:
            why = "; ".join(line.strip() for line in str(error).splitlines())
        print(printable(f"not checked against DGL: {why}"))
        return SKIPPED
    with threads(None):
        found, left_out = compare(model.double().to(options.device).eval(), strains.to(options.device))
    reference, *others = found.values()
    differences = {name: one.difference(reference) for name, one in found.items() if one is not reference}
    if not options.quiet:
        print(f"{count(strains.num_strains, 'strain')} {whose}, in double precision, {BATCH} at once\n")
        rows = [("strategy", "largest difference", "seconds", "times as fast")]
        for name, one in found.items():
            difference = f"{differences[name]:.1e}" if name in differences else ""
            rows.append((name, difference, f"{one.seconds:.2f}", f"{reference.seconds / one.seconds:.1f}"))
        print("\n".join([*aligned(rows, left={0}), *left_out]) + "\n")
    if not others:
        print(f"not checked against DGL: {REFERENCE} alone computes this model")
        return SKIPPED
    wrong = {name: by for name, by in differences.items() if not by <= TOLERANCE}  # NaN, too
    if wrong:
        print(f"checked against DGL: {max(wrong, key=wrong.__getitem__)} DIFFERS by {max(wrong.values()):.0e}")
        return DIFFERENT
    used = model.config.strategy
    own = found.get(model.choices_on(options.device).strategy if used == "auto" else used, reference)
    print(f"checked against DGL: equal to {max(differences.values()):.0e}{_speed(reference, own)}")
    return EQUAL


def _speed(reference: Checked, own: Checked) -> str:
    """Say how the strategy that the model predicts with compares, unless that is the reference."""
    ratio = reference.seconds / own.seconds
    if own is reference:
        return ""
    if 2 / 3 < ratio < 3 / 2:
        return "; DGL is about as fast here"
    return f"; {ratio:.3g} times as fast" if ratio > 1 else f"; DGL is {1 / ratio:.3g} times as fast here"


def compare(model: CellModel, strains: GenotypeBatch) -> tuple[dict[str, Checked], list[str]]:
    """Predict strains by every strategy, the reference first, and say which do not run."""
    from dglcell.perturbation import STRATEGIES

    found, left_out, configured = {}, [], model.config.strategy
    try:
        for strategy in sorted(STRATEGIES, key=lambda name: name != REFERENCE):
            model.config.strategy = strategy
            try:
                found[strategy] = _predicted(model, strains)
            except DglcellError as error:
                if strategy == REFERENCE:
                    raise
                left_out.append(f"{strategy} does not run: {str(error).partition(chr(10))[0]}")
    finally:
        model.config.strategy = configured
    return found, left_out


def _predicted(model: CellModel, strains: GenotypeBatch) -> Checked:
    import torch

    from dglcell.models.model import joined

    number = strains.num_strains
    parts = [strains.part(first, min(first + BATCH, number)) for first in range(0, number, BATCH)]
    with torch.inference_mode():
        model(parts[0])  # kernels are compiled
        model.eval()  # forgets what it kept of the wild type
        began = time.perf_counter()
        whole = joined([model(part) for part in parts])
        predicted = {"prediction": whole.phenotypes.cpu()}  # which waits for a GPU
        seconds = time.perf_counter() - began
    predicted |= {name: part.cpu() for name, part in whole.parts.items()}
    if whole.embedding is not None:
        predicted["embedding"] = whole.embedding.cpu()
    return Checked(predicted, seconds)


def _model_and_strains(path: Path, number: int) -> tuple[StrainModel, GenotypeBatch, str]:
    """Return the model of a run, strains, and whose they are."""
    import torch

    from dglcell.graph.schema import GENE
    from dglcell.perturbation.genotype import GenotypeBatch
    from dglcell.runs import RunDirectory
    from dglcell.training.checkpoint import load_trained
    from dglcell.training.prepare import prepare_run

    directory, generator = RunDirectory(path), torch.Generator().manual_seed(0)
    trained = load_trained(directory)
    try:
        prepared = prepare_run(trained.config, directory, "dglcell check")
        name = "test" if len(prepared.parts["test"]) else "train"
        part = prepared.parts[name]
        chosen = part[torch.randperm(len(part), generator=generator)[:number]]
        return trained.model, prepared.dataset.take(chosen).perturbations, f"of the {name} part"
    except DglcellError:
        # A trained model has no store: strains delete one to three genes, with the first of all covariates.
        genes, seen = trained.model.cell.num_nodes[GENE], trained.model.config.covariates
        deleted = [torch.randperm(genes, generator=generator)[: 1 + i % 3].tolist() for i in range(number)]
        covariates = torch.zeros(number, len(seen)) if seen else None
        drawn = replace(GenotypeBatch.from_lists(deleted, genes), covariates=covariates)
        return trained.model, drawn, f"drawn at random, for {path}"


class Finding(NamedTuple):
    """A finding is one line of the doctor's report."""

    what: str
    state: str
    ok: bool | None = None  #: whether it works; None where it is only information
    do: str = ""


@verb("doctor")
def doctor(options: argparse.Namespace) -> None:
    """Check what works on this machine: versions, devices, kernels."""
    print(format_findings(examine()))


def examine() -> list[Finding]:
    """Examine everything, without using the network or writing a file."""
    import torch

    from dglcell.files.atomic import RAW_VARIABLE, raw_folder
    from dglcell.kernels.spmm import KERNELS
    from dglcell.machine import allotted_cores, cores, processor_name

    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    raw, unset = os.environ.get(RAW_VARIABLE), f"{RAW_VARIABLE}, which would name another folder, is not set"
    return [
        Finding("python", platform.python_version(), (3, 11) <= sys.version_info < (3, 14), "use Python 3.11 to 3.13"),
        *_packages(),
        *_dgl_and_gpu(),
        Finding("CPU", f"{processor_name()}, {count(cores(), 'core')}, {allotted_cores()} of them allotted"),
        *[_kernel(name, device) for device in devices for name in KERNELS],
        Finding("raw files", raw, os.path.isdir(raw), f"set {RAW_VARIABLE} to an existing folder")
        if raw
        else Finding("raw files", f"{raw_folder()}; {unset}"),
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
    from dglcell.runs import version_of

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
        findings.append(Finding(name, version, not bad, do))
    return findings


def _dgl_and_gpu() -> list[Finding]:
    import torch

    from dglcell.graph.resident_graph import dgl_runs_on, import_dgl
    from dglcell.kernels.spmm import default_kernel
    from dglcell.perturbation import DGL_STRATEGIES

    try:
        dgl = Finding("dgl", str(import_dgl().__version__), True)
    except MissingDependencyError as error:
        without = f"without it there are no strategies {' and '.join(DGL_STRATEGIES)}"
        dgl = Finding("dgl", f"not here ({error.__cause__}): {without}")
    if not torch.cuda.is_available():
        return [dgl, Finding("GPU", "none that torch can use")]
    names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    runs = "runs" if dgl_runs_on("cuda") else "does not run"
    return [dgl, Finding("GPU", f"{names}; DGL {runs} on it; `kernel: auto` is {default_kernel('cuda')}", True)]


def _kernel(name: str, device: str) -> Finding:
    import torch

    from dglcell.graph.resident_graph import ResidentRelation
    from dglcell.kernels.spmm import kernels_on, spmm

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
        return Finding(what, str(error), False, "install what is missing, or use another kernel")
    right = torch.equal(result, torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    return Finding(what, "gives the right sums" if right else f"WRONG: {result.tolist()}", right)
