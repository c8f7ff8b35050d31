"""Find runs and trained models by path or name, and read the cards of models."""

from __future__ import annotations

import csv
import logging
import os
import re
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import AfterValidator

from dglcell.config.read import parse_inputs
from dglcell.errors import CheckpointError, GraphError, did_you_mean, listing
from dglcell.files.atomic import sha256_file, user_cache
from dglcell.files.untrusted import Sha256, Whole, read_fields
from dglcell.graph.cell import build_cell, read_cell, save_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.tables import read_genome_table
from dglcell.graph.vocabulary import Vocabulary
from dglcell.report.run_files import Row, read_run_config, result_rows
from dglcell.runs import RunDirectory

log = logging.getLogger("dglcell")

PACKAGED = Path(__file__).parent / "trained"  # models of this package

NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
FILE = re.compile(r"(checkpoints/|cell/)?[A-Za-z0-9]\w*\.(ckpt|csv|json|jsonl|npz|yaml)")


def _of_a_run(files: dict[str, str]) -> dict[str, str]:
    has = {name.partition("/")[0] for name in files}
    if not all(map(FILE.fullmatch, files)) or not {"config.yaml", "checkpoints"} <= has:
        raise ValueError("these are no files of a run")
    return files


@dataclass(frozen=True)
class Card:
    """A card says what users should know of a trained model; ``card.json`` has these fields, of these kinds."""

    description: str  #: what it predicts, in a sentence
    organism: str  #: whose cell it is
    licence: str  #: licence of the weights
    limits: list[str]  #: what it must not be used for, a sentence each
    command: str  #: command that trained the model
    dglcell: str  #: version of this package that trained the model
    model: str  #: kind of the model, and its strategy
    parameters: Whole  #: number of parameters
    genes: Whole  #: number of genes of the cell graph
    units: dict[str, str]  #: phenotype → unit
    source: str  #: source of the strains
    strains: dict[str, Whole]  #: part → number of strains
    split: str  #: kind of the split
    hashes: dict[str, Sha256]  #: hashes of cell graph, gene vocabulary, store and split
    #: metrics of the model and of baselines on the test part, as in ``results.json``
    rows: list[dict[str, Any]]
    files: Annotated[dict[str, Sha256], AfterValidator(_of_a_run)]  #: path inside the model's folder → sha256


AGAIN = "copy or fetch the model again; a model of this package comes back with `pip install --force-reinstall dglcell`"


def read_card(folder: Path) -> Card:
    """Read the card of a model."""
    path = RunDirectory(folder).card
    if not path.is_file():
        do = "make one of a finished run with `dglcell models RUN -o MODEL`"
        raise CheckpointError(f"'{folder}' is no trained model", expected=f"a folder with {path.name}", do=do)
    kinds = get_type_hints(Card, include_extras=True) | {"rows": list[Row]}
    kinds |= {f"hashes.{name}": Sha256 for name in ("cell", "store", "split")}
    content = read_fields(path, kinds, CheckpointError, expected="the card of a trained model", do=AGAIN)
    return Card(**{name: content[name] for name in Card.__dataclass_fields__})


def check_files(folder: Path) -> Card:
    """Compare the files of a model with the hashes on its card, and return the card."""
    card, run = read_card(folder), RunDirectory(folder)
    for path in run.files():
        if path not in (run.card, run.owner) and path.relative_to(folder).as_posix() not in card.files:
            what, expected = f"'{path}' is not on the card of the model", "only files that the card names"
            raise CheckpointError(what, expected=expected, do=AGAIN)
    for name, expected in card.files.items():
        path = folder / name
        found = sha256_file(path) if path.is_file() else None
        if found != expected:
            what, got = f"'{path}' is not the file that the card of the model names", found and f"sha256 {found}"
            raise CheckpointError(what, got=got or "no such file", expected=f"sha256 {expected}", do=AGAIN)
    return card


def list_models() -> dict[str, Path]:
    """Return name → folder of the models of this package."""
    return {path.parent.name: path.parent for path in sorted(PACKAGED.glob("*/card.json"))}


def find_model(name: str) -> Path | None:
    """Check the files of the model of a name and return its folder; None where no model has the name."""
    folder = list_models().get(name)
    if folder is not None:
        check_files(folder)
    return folder


def find_run(given: str | Path) -> Path:
    """Return the directory of a run or a trained model, given its path or, if nothing is there, its name."""
    path = Path(given)
    if os.path.lexists(path):
        if RunDirectory(path).card.is_file():
            check_files(path)
        return path
    found = find_model(str(given)) if NAME.fullmatch(str(given)) else None
    if found is None:
        raise unknown_run(path)
    return found


def runs_in(path: Path) -> list[Path]:
    """Return the run directories at a path: a run, all seeds in an experiment's folder, or a trained model."""
    path = find_run(path)
    folders = [] if RunDirectory(path).config.exists() else path.glob("seed-*")
    seeds = sorted(folders, key=lambda run: (len(run.name), run.name))
    found = [run for run in seeds if RunDirectory(run).config.exists()]
    for run in seeds:
        if run not in found:
            log.warning("'%s' is left out: it has no config.yaml", run)
    return found or [path]


def unknown_run(path: Path) -> CheckpointError:
    """Return the error for a path where no run is, and which is no model's name; close names are those in ``runs``."""
    known, name, folder = list_models(), path.as_posix(), Path("runs")
    if path.is_file():
        what, remedy = f"'{name}' is a file, and no run", "give the path that `train` printed"
        return CheckpointError(what, expected="a run directory, or a trained model", do=remedy)
    there = [run.as_posix() for run in [*folder.glob("*"), *folder.glob("*/seed-*")]]
    otherwise = "give the path that `train` printed; `dglcell runs` lists runs, and `dglcell models` trained models"
    do = did_you_mean(name, [*known, *there]) or did_you_mean((folder / name).as_posix(), there, otherwise)
    if not NAME.fullmatch(name):
        return CheckpointError(f"run directory '{name}' not found", expected="a run directory", do=do)
    if seeds := sorted((folder / name).glob("seed-*")):
        do = f"did you mean {seeds[0]}?"
    what = f"run directory '{name}' not found, and no trained model is called so"
    return CheckpointError(what, expected=f"a run directory, or one of {listing(known)}", do=do)


def cell_of_run(directory: RunDirectory) -> CellGraph:
    """Read the cell graph in a run directory; for a model without one, build it from what cobra ships, and keep it."""
    if directory.cell.is_dir() or not directory.card.is_file():
        return read_cell(directory.cell)
    cell = _built_cell(directory)
    if not directory.names.is_file():  # not every metabolic model has names of genes
        return cell
    return cell.with_genes(cell.genes.named_by(read_genome_table(directory.names).joined(cell.genes)))


def write_names(file: Path, genes: Vocabulary) -> None:
    """Write the standard names of genes, as `cell_of_run` reads them, or no file where there are none."""
    rows = [(genes.standard(name), name) for name in genes if genes.standard(name)]
    if rows:
        with open(file, "w", newline="", encoding="utf-8") as opened:
            csv.writer(opened, lineterminator="\n").writerows([("Gene", "Synonym"), *rows])


def _built_cell(directory: RunDirectory) -> CellGraph:
    expected = read_card(directory.path).hashes["cell"]
    kept = user_cache("cells") / expected
    with suppress(GraphError):
        cell = read_cell(kept)
        if cell.sha256 == expected and cell.titles:  # an earlier version has kept none
            return cell
    cell = build_cell(parse_inputs(read_run_config(directory), where=str(directory.config)).cell)
    if cell.sha256 != expected:
        what, got = f"the cell graph of the trained model '{directory.path}' cannot be built here", cell.sha256[:12]
        do = f"install the version of cobra that '{directory.environment}' names"
        raise GraphError(what, got=f"cell {got}", expected=f"cell {expected[:12]}", do=do)
    with suppress(OSError):
        save_cell(cell, kept, overwrite=True)
    return cell


def format_models(models: Mapping[str, Path]) -> str:
    """Return each model's name, with its description below it."""
    lines: list[str] = []
    for name, folder in models.items():
        card, size = read_card(folder), sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        of = f"{', '.join(card.units)} of {card.organism}; {card.genes:,} genes; {size / 1e6:.1f} MB"
        about = (
            textwrap.fill(text, 80, initial_indent="    ", subsequent_indent="    ") for text in (card.description, of)
        )
        lines += [name, *about]
    return "\n".join([*lines, "", "`dglcell models NAME` shows scores, limits and licence of a model."])


def format_card(name: str, folder: Path) -> str:
    """Return everything that users should know of a model."""
    from dglcell.report.page import coverage_lines, format_results_table  # takes a second

    card = read_card(folder)
    rows = result_rows(card.rows)
    scores = "\n\n".join([format_results_table(rows), *coverage_lines(rows, card.split)])
    strains = ", ".join(f"{number:,} {part}" for part, number in card.strains.items())
    units = (f"{phenotype} ({unit})" if unit else phenotype for phenotype, unit in card.units.items())
    lines = {
        "organism": card.organism,
        "predicts": ", ".join(units),
        "cell graph": f"{card.genes:,} genes, sha256 {card.hashes['cell']}",
        "data": f"{card.source}, sha256 {card.hashes['store']}",
        "split": f"{card.split}, sha256 {card.hashes['split']}",
        "strains": strains,
        "model": f"{card.model}, {card.parameters:,} parameters",
        "made by": f"{card.command} (dglcell {card.dglcell})",
        "licence": card.licence,
        "folder": str(folder),
    }
    about = [f"{label:<12}{text}" for label, text in lines.items()]
    limits = [f"{'limits' if number == 0 else '':<12}{text}" for number, text in enumerate(card.limits)]
    usage = f"Predict with `dglcell predict {name} genotypes.csv`."
    return "\n".join([card.description, "", *about, *limits, "", scores, "", usage])
