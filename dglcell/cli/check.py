"""Predict strains a second time by DGL, and compare every strategy that runs here with it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dglcell.cli.arguments import add_device, add_raw, load, positive
from dglcell.errors import ConfigError, DglcellError, MissingDependencyError, aligned, count, printable

if TYPE_CHECKING:
    from torch import Tensor

    from dglcell.config.experiment import Config
    from dglcell.models.cell_model import CellModel
    from dglcell.models.model import StrainModel
    from dglcell.perturbation.genotype import GenotypeBatch
    from dglcell.training.prepare import Prepared

HELP = "compare predictions with those by DGL's own subgraphs"
EPILOG = """\
Strains are predicted in double precision by `dgl.edge_subgraph`, which really removes what they lose, and by every
other strategy that runs here. For a run, strains are of its test part; where its store is gone, or for a trained model,
they are drawn at random. An experiment is checked with weights drawn at random.

  dglcell check runs/quickstart/seed-0
  dglcell check conf/106-ecoli-core/gene_disjoint.yaml --strains 128

The exit status is 0 if all are equal, 1 if one is not, and 3 if nothing was compared, because DGL is not here.
"""

REFERENCE = "edge_subgraph"
EQUAL, DIFFERENT, SKIPPED = 0, 1, 3

TOLERANCE = 1e-10
"""Equal values differ by at most this share of the largest one, or of 1."""

BATCH = 16
"""Strains that are predicted at once: each has a graph of its own."""


@dataclass(frozen=True)
class Checked:
    """Hold what a strategy predicted, and what it took."""

    strategy: str  #: name of the strategy
    predicted: dict[str, Tensor]  #: what → [S, …] predictions in normalised units, their parts, and embeddings
    seconds: float  #: time of all strains
    peak: int  #: the largest rise of memory in bytes

    def difference(self, reference: Checked) -> float:
        """Return the largest difference from what the reference predicts, as a share of the largest value or of 1."""
        pairs = [(of, self.predicted[what]) for what, of in reference.predicted.items()]
        return max(float((mine - of).abs().max()) / max(1.0, float(of.abs().max())) for of, mine in pairs)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what is checked, and on how many strains."""
    parser.add_argument("config", type=Path, metavar="RUN|FILE", help="run directory, trained model, or experiment")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="keys of an experiment")
    parser.add_argument("--strains", type=positive, default=64, metavar="N", help="number of strains (default: 64)")
    add_device(parser)
    add_raw(parser)


def check(options: argparse.Namespace) -> int:
    """Run ``dglcell check``, and return its exit status."""
    from dglcell.graph.resident_graph import dgl_runs_on, import_dgl
    from dglcell.machine.devices import check_device, threads
    from dglcell.models.cell_model import CellModel

    check_device(options.device)
    model, strains, whose = _read(options)
    if not (isinstance(model, CellModel) and model.own_graphs):
        raise ConfigError(
            "this model has no graphs of strains to check",
            got=f"`model.name: {model.config.name}`",
            expected="hetero_cell, or a model of your own that is derived from it",
        )
    if not dgl_runs_on(options.device):
        try:
            import_dgl()
            why = f"this build of DGL has no {options.device}"
        except MissingDependencyError as error:
            why = "; ".join(line.strip() for line in str(error).splitlines())
        print(printable(f"not checked against DGL: {why}"))
        return SKIPPED
    with threads(None):
        found, left_out = _compare(model.double().to(options.device).eval(), strains.to(options.device))
    if not options.quiet:
        print(f"{count(strains.num_strains, 'strain')} {whose}, in double precision, {BATCH} at once\n")
        print("\n".join([*_table(found), *left_out]) + "\n")
    used = model.config.strategy
    status, said = _verdict(found, model.choices_on(options.device).strategy if used == "auto" else used)
    print(said)
    return status


def _compare(model: CellModel, strains: GenotypeBatch) -> tuple[list[Checked], list[str]]:
    """Predict strains by every strategy, the reference first, and say which do not run."""
    from dglcell.perturbation import STRATEGIES

    found, left_out, configured = [], [], model.config.strategy
    try:
        for strategy in sorted(STRATEGIES, key=lambda name: name != REFERENCE):
            model.config.strategy = strategy
            try:
                found.append(_predicted(model, strains, strategy))
            except DglcellError as error:
                if strategy == REFERENCE:
                    raise
                left_out.append(f"{strategy} does not run: {str(error).partition(chr(10))[0]}")
    finally:
        model.config.strategy = configured
    return found, left_out


def _predicted(model: CellModel, strains: GenotypeBatch, strategy: str) -> Checked:
    import torch

    from dglcell.machine.devices import measured_memory
    from dglcell.models.model import joined

    number, device = strains.num_strains, strains.genes.device
    parts = [strains.part(first, min(first + BATCH, number)) for first in range(0, number, BATCH)]
    with torch.inference_mode():
        model(parts[0])  # kernels are compiled
        model.eval()  # forgets what it kept of the wild type
        with measured_memory(device.type) as peak:
            began = time.perf_counter()
            whole = joined([model(part) for part in parts])
            predicted = {"prediction": whole.phenotypes.cpu()}
            seconds = time.perf_counter() - began
    predicted |= {name: part.cpu() for name, part in whole.parts.items()}
    if whole.embedding is not None:
        predicted["embedding"] = whole.embedding.cpu()
    return Checked(strategy, predicted, seconds, peak.bytes)


def _table(found: Sequence[Checked]) -> list[str]:
    reference = found[0]
    rows = [("strategy", "largest difference", "seconds", "times as fast", "MB")]
    for one in found:
        difference = "" if one is reference else f"{one.difference(reference):.1e}"
        ratio = f"{reference.seconds / one.seconds:.1f}"
        rows.append((one.strategy, difference, f"{one.seconds:.2f}", ratio, f"{one.peak / 1e6:,.0f}"))
    return aligned(rows, left={0})


def _verdict(found: Sequence[Checked], used: str) -> tuple[int, str]:
    """Return the exit status, and the line that says whether all are equal to the first.

    Args:
        found: the reference, and what is compared with it.
        used: the strategy that the model predicts with.
    """
    reference, *others = found
    if not others:
        return SKIPPED, f"not checked against DGL: {REFERENCE} alone computes this model"
    differences = {one.strategy: one.difference(reference) for one in others}
    wrong = {name: by for name, by in differences.items() if not by <= TOLERANCE}  # NaN, too
    if wrong:
        return (
            DIFFERENT,
            f"checked against DGL: {max(wrong, key=wrong.__getitem__)} DIFFERS by {max(wrong.values()):.0e}",
        )
    said = f"checked against DGL: equal to {max(differences.values()):.0e}"
    for ratio in (reference.seconds / one.seconds for one in others if one.strategy == used):
        if 2 / 3 < ratio < 3 / 2:
            return EQUAL, f"{said}; DGL is about as fast here"
        said += f"; {ratio:.3g} times as fast" if ratio > 1 else f"; DGL is {1 / ratio:.3g} times as fast here"
    return EQUAL, said


def _read(options: argparse.Namespace) -> tuple[StrainModel, GenotypeBatch, str]:
    """Return a model, strains, and whose they are."""
    from dglcell.trained_models import SUFFIX, find_model, find_run

    given = options.config
    is_run = given.is_dir() or given.suffix == SUFFIX or not (given.exists() or find_model(str(given)) is None)
    if not is_run:
        return _of_experiment(load(options), options.strains)
    if options.overrides:
        do = "leave the overrides out, or check an experiment's file"
        raise ConfigError(f"'{given}' is checked as it was trained", got=" ".join(options.overrides), do=do)
    return _of_run(find_run(given), options.strains)


def _of_run(path: Path, number: int) -> tuple[StrainModel, GenotypeBatch, str]:
    import torch

    from dglcell.graph.schema import GENE
    from dglcell.perturbation.genotype import GenotypeBatch
    from dglcell.runs.directory import RunDirectory
    from dglcell.training.checkpoint import load_trained
    from dglcell.training.prepare import prepare_run

    directory = RunDirectory(path)
    trained = load_trained(directory)
    try:
        prepared = prepare_run(trained.config, directory, "dglcell check", continued=True)
        return trained.model, *_of_part(prepared, number)
    except (
        DglcellError
    ):  # a trained model has no store: strains delete one to three genes, with the first of all covariates
        genes, generator = trained.model.cell.num_nodes[GENE], torch.Generator().manual_seed(0)
        deleted = [torch.randperm(genes, generator=generator)[: 1 + i % 3].tolist() for i in range(number)]
        seen = trained.model.config.covariates
        drawn = replace(
            GenotypeBatch.from_lists(deleted, genes), covariates=torch.zeros(number, len(seen)) if seen else None
        )
        return trained.model, drawn, f"drawn at random, for {path}"


def _of_experiment(config: Config, number: int) -> tuple[StrainModel, GenotypeBatch, str]:
    import torch

    from dglcell.runs.directory import RunDirectory
    from dglcell.training.fit import make_task
    from dglcell.training.prepare import prepare, settle_what_models_see

    prepared = prepare(config, command="dglcell check")
    config = settle_what_models_see(config, prepared)
    model = make_task(config, prepared, RunDirectory(config.run_directory)).model
    with torch.no_grad():  # A fresh model predicts nearly the same of all strains.
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    strains, whose = _of_part(prepared, number)
    return model, strains, f"{whose}, with weights drawn at random"


def _of_part(prepared: Prepared, number: int) -> tuple[GenotypeBatch, str]:
    """Return strains of the test part; of the training part where every strain trains."""
    import torch

    name = "test" if len(prepared.parts["test"]) else "train"
    part = prepared.parts[name]
    chosen = part[torch.randperm(len(part), generator=torch.Generator().manual_seed(0))[:number]]
    return prepared.dataset.take(chosen).perturbations, f"of the {name} part"
