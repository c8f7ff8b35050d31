"""Write a finished run as a trained model: what it needs to predict, and a card, in a folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from dglcell.config.experiment import PathsConfig, SlurmConfig, TrackingConfig
from dglcell.config.read import to_yaml
from dglcell.errors import ConfigError
from dglcell.files.atomic import atomic_directory, sha256_file, write_json
from dglcell.graph.cell import MODEL, UNION, CellConfig, save_cell
from dglcell.graph.model_files import SHIPPED
from dglcell.report.run_files import RunFiles, read_run
from dglcell.runs import RunDirectory
from dglcell.trained_models import NAME, Card, read_card, write_names
from dglcell.training.checkpoint import MODEL as WEIGHTS
from dglcell.training.checkpoint import Trained, load_trained, read_checkpoint

ABOUT = ("organism", "licence", "limits", "description")
"""This part of a card no file of a run has: what whose cell it is, and what users should know (`Card`)."""


def export(run: Path, output: Path, about: Mapping[str, Any], *, strains: bool = True) -> Path:
    """Write a finished run as a trained model; an earlier one with the same name is replaced.

    Args:
        output: the model's folder.
        about: those of ``ABOUT`` that are new; others are those of an earlier card, and the experiment's description.
        strains: whether measured and predicted phenotypes of validation and test strains go with it.
    """
    earlier, found = _earlier(output), read_run(run)
    trained = load_trained(found.directory)
    known = {name: about.get(name) or getattr(earlier, name, None) for name in ABOUT}
    known["description"] = known["description"] or found.config["experiment"]["description"]
    if lacking := [name for name, value in known.items() if not value]:
        got, expected = f"no {' and no '.join(lacking)}", "what a user has to know before the first prediction"
        do = "give " + " and ".join(f"--{name.removesuffix('s')} TEXT" for name in lacking)
        raise ConfigError("the card of the model is not complete", got=got, expected=expected, do=do)
    with atomic_directory(output, overwrite=True) as folder:
        _write(folder, found, trained, known, strains)
    return output


def _earlier(output: Path) -> Card | None:
    """Read the card of an earlier model at the output's path."""
    if not NAME.fullmatch(output.name):
        expected = "letters, digits, `_`, `.` and `-`"
        raise ConfigError("this is no name of a model", got=output.name, expected=expected, do="choose another output")
    if not output.exists():
        return None
    if not RunDirectory(output).card.is_file():
        what, expected = f"'{output}' is there, and is no trained model", "a new folder, or an earlier model"
        raise ConfigError(what, expected=expected, do="choose another output")
    return read_card(output)


def _write(folder: Path, run: RunFiles, trained: Trained, about: Mapping[str, Any], strains: bool) -> None:
    there, here = run.directory, RunDirectory(folder)
    kept = [there.environment, there.split, there.metrics, there.usage, there.results, there.calibration]
    for path in [*kept, there.baselines, *(map(there.predictions, run.predictions) if strains else ())]:
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    command = " ".join(word for word in run.environment["command"].split() if not word.startswith("paths."))
    environment = {**run.environment, "command": command}
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
    card = Card(
        **about,
        **{name: environment[name] for name in ("command", "dglcell", "model", "parameters", "strains", "hashes")},
        genes=environment["cell"]["genes"],
        units=dict(zip(trained.phenotypes, trained.units, strict=True)),
        source=run.config["data"]["source"]["name"],
        split=environment["split"]["kind"],
        rows=[row for row in run.results["rows"] if row["part"] == "test"],
        files=files,
    )
    write_json(here.card, asdict(card))
    load_trained(here, cell=trained.cell)


def is_shipped(cell: CellConfig) -> bool:
    """Return whether a cell graph can be built from nothing but a metabolic model that cobra ships."""
    read_elsewhere = cell.networks or cell.aliases or cell.similarity is not None or cell.genes not in (MODEL, UNION)
    return cell.model in SHIPPED and not read_elsewhere
