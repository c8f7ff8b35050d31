"""Measure what computed fluxes teach of measured growth: ``python -m benchmarks.keio_taught OUT RUNS SEED [SEED …]``.

A teacher learns the fluxes of all reactions of iJO1366 in strains and media of a screen that is computed: every single
deletion, and some pairs. It knows the genes of Keio's test part, but nothing that was measured. The model of
`conf/111-baba2006-keio/new_genes.yaml`, in a form of which the network is half (``FORM``), is then trained with each
seed, as usual, beginning with the teacher's weights (``start_from``), and without messages, which are rounds of flux
balance here. The runs are compared within each medium, beside the growth that flux balance
analysis gives. Null models are in the record of ``benchmarks.keio``, on the same test strains.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.keio import DENSITY, EXPERIMENT, ahead
from benchmarks.new_genes import scores
from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.data.columns import MEDIUM
from dglcell.data.sources.config import InSilicoConfig
from dglcell.files.atomic import write_json
from dglcell.machine.processor import processor_name
from dglcell.runs.directory import RunDirectory
from dglcell.training.control import without_messages
from dglcell.training.prepare import Prepared, prepare
from dglcell.training.run import train

FORM = ("model.flux_exact=false", "model.null_share=0.5", "trainer.epochs=12")
"""What the model has in place of the experiment's settings: growth by 512 rounds, and half null models."""

TEACHER = (
    "data.source.name=insilico",
    "data.nodes={flux: {type: reaction, zero_if_lost: true}}",
    "data.batch_size=64",
    "loss.phenotypes=0",
    "split={kind: random, seed: 0, fractions: [0.9, 0.05, 0.05]}",
    "model.flux_rounds=0",
    "model.flux_exact=false",
    "model.null_share=0",
    "trainer.epochs=8",
    "null_models=false",
)
"""What the teacher has in place of the experiment's settings. It finds fluxes without rounds of flux balance."""

PAIRS = 500
TAUGHT, QUIET = "taught by fluxes", "without messages"


def teacher(name: str, paths: list[str]) -> Config:
    """Return the configuration of the teacher, in the media of the experiment."""
    config = load_config(EXPERIMENT, [*paths, *TEACHER, f"experiment.name={name}-fluxes"])
    assert config.cell.model is not None
    screen = InSilicoConfig(
        config.cell.model, pairs=str(PAIRS), triples="none", processes=1, media=config.cell.media, fluxes=True
    )
    source = dataclasses.replace(config.data.source, insilico=screen)
    return dataclasses.replace(config, data=dataclasses.replace(config.data, source=source))


def growth_in_screen(prepared: Prepared) -> dict[tuple[str, str], float]:
    """Return the growth that flux balance analysis gives to single deletions: gene and medium → fitness."""
    strains = prepared.dataset.numpy()
    single = np.flatnonzero(strains.num_deletions == 1)
    genes = [next(iter(strains.genotypes[i])) for i in single]
    media = strains.shown(MEDIUM)[single].tolist()
    return dict(zip(zip(genes, media, strict=True), strains.phenotypes["fitness"][single].tolist(), strict=True))


def of_media(
    runs: dict[str, Path], growth: dict[tuple[str, str], float]
) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return the scores of runs on the test part they share, and those of flux balance analysis: medium → predictor."""
    tables = {name: pd.read_csv(RunDirectory(run).predictions("test")) for name, run in runs.items()}
    first = next(iter(tables.values()))
    assert all(table[["genes", MEDIUM]].equals(first[["genes", MEDIUM]]) for table in tables.values())
    predictions = {name: table[f"predicted_{DENSITY}"].to_numpy() for name, table in tables.items()}
    predictions["flux balance analysis"] = np.array(
        [growth[key] for key in zip(first["genes"], first[MEDIUM], strict=True)]
    )
    found = {}
    for medium in sorted(first[MEDIUM].unique()):
        rows = (first[MEDIUM] == medium).to_numpy()
        measured = first[f"measured_{DENSITY}"].to_numpy()[rows]
        found[medium] = scores(measured, {name: of[rows] for name, of in predictions.items()})
    return found


def main(out: str, runs: str, seeds: list[int], data: str = "data") -> None:
    """Train what is not trained yet, and write the file, draw by draw."""
    paths = [f"paths.runs={runs}", f"paths.data={data}", "trainer.threads=1", "plot=false", *FORM]
    name = load_config(EXPERIMENT).experiment.name
    taught_by = train(teacher(name, paths)).directory.path
    growth = growth_in_screen(prepare(teacher(name, paths), command="benchmark"))
    draws: list[dict[str, Any]] = []
    for seed in seeds:
        own = [*paths, f"seed={seed}", f"split.seed={seed}", "null_models=false"]
        untaught = load_config(EXPERIMENT, [*own, f"experiment.name={name}-untaught"])
        taught = load_config(EXPERIMENT, [*own, f"experiment.name={name}-taught", f"start_from={taught_by}"])
        configs = {"model": untaught, TAUGHT: taught, QUIET: without_messages(untaught, untaught.trainer.epochs)}
        compared = {kind: train(config).directory.path for kind, config in configs.items()}
        draws.append({"split_seed": seed, "media": of_media(compared, growth)})
        record = {"command": "python -m benchmarks.keio_taught OUT RUNS SEED [SEED …]", "experiment": name}
        differences = ahead([one["media"] for one in draws]) if len(draws) > 1 else {}
        found = {"processor": processor_name(), "draws": draws, "differences": differences}
        write_json(Path(out), {**record, **found})


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], sys.argv[2], [int(seed) for seed in sys.argv[3:]])
