"""Write a finished run as a trained model: what it needs to predict, and a card, in a folder or in one file."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from dglcell.config.experiment import PathsConfig, SlurmConfig, TrackingConfig
from dglcell.config.read import to_yaml
from dglcell.errors import ConfigError
from dglcell.files.atomic import atomic_directory, atomic_file, sha256_file, write_json
from dglcell.graph.cell import MODEL, UNION, CellConfig, save_cell
from dglcell.graph.model_files import SHIPPED
from dglcell.report.run_files import RunFiles, read_run
from dglcell.runs.directory import RunDirectory
from dglcell.trained_models import NAME, SUFFIX, Card, read_card, unpack, write_names
from dglcell.training.checkpoint import MODEL as WEIGHTS
from dglcell.training.checkpoint import Trained, load_trained, read_checkpoint


@dataclass(frozen=True)
class About:
    """This is the part of a card that no file of a run has. Values that are None are taken from an earlier card."""

    organism: str | None = None  #: whose cell it is
    licence: str | None = None
    limits: list[str] | None = None  #: what the model must not be used for, a sentence each
    description: str | None = None  #: what it predicts; that of the experiment where no card has one

    def over(self, earlier: Card | None, run: RunFiles) -> About:
        """Return all of it, with values of an earlier card or of the run in place of None."""
        found = {name: getattr(self, name) or getattr(earlier, name, None) for name in vars(self)}
        found["description"] = found["description"] or run.config["experiment"]["description"]
        lacking = [name for name, value in found.items() if not value]
        if lacking:
            raise ConfigError(
                "the card of the model is not complete",
                got=f"no {' and no '.join(lacking)}",
                expected="what a user has to know before the first prediction",
                do="give " + " and ".join(f"--{name.removesuffix('s')} TEXT" for name in lacking),
            )
        return About(**found)


def export(run: Path, output: Path, about: About, *, strains: bool = True) -> Path:
    """Write a finished run as a trained model; an earlier one with the same name is replaced.

    Args:
        output: the model's folder, or its one file, which ends in ``.zip``.
        about: text of the model's card.
        strains: whether measured and predicted phenotypes of validation and test strains go with it.

    Returns:
        ``output``.

    Raises:
        CheckpointError: the run is not finished, or a file of it is missing or damaged.
        ConfigError: the card would not be complete, or something other than a model is at the output's path.
    """
    earlier = _earlier(output)
    found = read_run(run)
    trained = load_trained(found.directory)
    about = about.over(earlier, found)
    if output.suffix != SUFFIX:
        with atomic_directory(output, overwrite=True) as folder:
            _write(folder, found, trained, about, strains)
        return output
    with tempfile.TemporaryDirectory() as name:
        _write(Path(name), found, trained, about, strains)
        with atomic_file(output) as partial, zipfile.ZipFile(partial, "w") as file:
            for path in sorted(path for path in Path(name).rglob("*") if path.is_file()):
                # All have this time, so that the same model has the same hash.
                member = zipfile.ZipInfo(path.relative_to(name).as_posix(), (1980, 1, 1, 0, 0, 0))
                member.compress_type = zipfile.ZIP_DEFLATED
                file.writestr(member, path.read_bytes())
    return output


def _earlier(output: Path) -> Card | None:
    """Read the card of an earlier model at the output's path."""
    if not NAME.fullmatch(output.name.removesuffix(SUFFIX)):
        expected = "letters, digits, `_`, `.` and `-`"
        raise ConfigError("this is no name of a model", got=output.name, expected=expected, do="choose another output")
    if output.is_file() and output.suffix == SUFFIX:
        return read_card(unpack(output))
    if output.exists():
        if not RunDirectory(output).card.is_file():
            expected = "a new folder, an earlier model, or a file that ends in .zip"
            raise ConfigError(
                f"'{output}' is there, and is no trained model", expected=expected, do="choose another output"
            )
        return read_card(output)
    return None


def _write(folder: Path, run: RunFiles, trained: Trained, about: About, strains: bool) -> None:
    there, here = run.directory, RunDirectory(folder)
    kept = [there.environment, there.split, there.metrics, there.usage, there.results, there.calibration]
    for path in [*kept, there.baselines, *(map(there.predictions, run.predictions) if strains else ())]:
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    environment = {**run.environment, "command": _anywhere(run.environment["command"])}
    write_json(here.environment, environment)
    config = replace(
        trained.config,
        data=replace(trained.config.data, store=None),
        paths=PathsConfig(),
        slurm=SlurmConfig(),
        tracking=TrackingConfig(),
        resume="auto",
    )
    here.config.write_text(to_yaml(config), encoding="utf-8")
    here.checkpoints.mkdir()
    # What predicts, without the state of the optimiser, the loss or callbacks.
    content, needed = read_checkpoint(trained.path), (WEIGHTS, "normaliser.")
    content["state_dict"] = {k: x.clone() for k, x in content["state_dict"].items() if k.startswith(needed)}
    content["dglcell"] = {**content["dglcell"], "config": to_yaml(config)}
    kept_content = {name: content[name] for name in ("dglcell", "epoch", "global_step", "state_dict")}
    torch.save(kept_content, here.checkpoints / trained.path.name)
    if is_shipped(config.cell):
        write_names(here.names, trained.cell.genes)
    else:
        save_cell(trained.cell, here.cell)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): sha256_file(path) for path in paths}
    write_json(here.card, asdict(_card(run, trained, about, files)))
    load_trained(here, cell=trained.cell)


def _anywhere(command: str) -> str:
    return " ".join(word for word in command.split() if not word.startswith("paths."))


def is_shipped(cell: CellConfig) -> bool:
    """Return whether a cell graph can be built from nothing but a metabolic model that cobra ships."""
    read_elsewhere = cell.networks or cell.aliases or cell.similarity is not None or cell.genes not in (MODEL, UNION)
    return cell.model in SHIPPED and not read_elsewhere


def _card(run: RunFiles, trained: Trained, about: About, files: dict[str, str]) -> Card:
    environment = run.environment
    return Card(
        description=about.description or "",
        organism=about.organism or "",
        licence=about.licence or "",
        limits=about.limits or [],
        command=_anywhere(environment["command"]),
        dglcell=environment["dglcell"],
        model=environment["model"],
        parameters=environment["parameters"],
        genes=environment["cell"]["genes"],
        units=dict(zip(trained.phenotypes, trained.units, strict=True)),
        source=run.config["data"]["source"]["name"],
        strains=environment["strains"],
        split=environment["split"]["kind"],
        hashes=environment["hashes"],
        rows=[row for row in run.results["rows"] if row["part"] == "test"],
        files=files,
    )
