"""Measure what computed fluxes teach of measured growth: ``python -m benchmarks.keio_taught OUT RUNS``.

RUNS is the folder of finished runs of `conf/111-baba2006-keio/new_genes.yaml`, a run for each draw of the test genes. A
teacher learns the fluxes of all reactions of iJO1366 in strains and media of a screen that is computed: every single
deletion, and some pairs. It knows the genes of Keio's test part, but nothing that was measured. The experiment is then
trained with the same seeds and splits, beginning with the teacher's weights (``start_from``), and without messages,
which are rounds of flux balance here. The runs are compared medium by medium, as in ``benchmarks.keio``.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import torch

from benchmarks.keio import EXPERIMENT, ahead, draw, flux_balance
from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.data.sources.config import InSilicoConfig
from dglcell.files.atomic import write_json
from dglcell.machine.processor import processor_name
from dglcell.training.control import without_messages
from dglcell.training.run import train

TEACHER = (
    "data.source.name=insilico",
    "data.nodes={flux: {type: reaction, zero_if_lost: true}}",
    "data.batch_size=64",
    "loss.phenotypes=0",
    "split={kind: random, seed: 0, fractions: [0.9, 0.05, 0.05]}",
    "model.flux_rounds=0",
    "model.null_share=0",
    "trainer.epochs=10",
    "null_models=false",
)
"""What the teacher has in place of the experiment's settings. It finds fluxes without rounds of flux balance."""

PAIRS = 500
TAUGHT, QUIET = "taught by fluxes", "without messages"


def teacher(name: str, paths: list[str]) -> Config:
    """Return the configuration of the teacher, in the media of the experiment."""
    config = load_config(EXPERIMENT, [*TEACHER, *paths, f"experiment.name={name}-fluxes"])
    assert config.cell.model is not None
    screen = InSilicoConfig(
        config.cell.model, pairs=str(PAIRS), triples="none", processes=1, media=config.cell.media, fluxes=True
    )
    source = dataclasses.replace(config.data.source, insilico=screen)
    return dataclasses.replace(config, data=dataclasses.replace(config.data, source=source))


def main(out: str, runs: str, data: str = "data") -> None:
    """Train what is not trained yet, and write the file."""
    paths = [f"paths.runs={runs}", f"paths.data={data}", "trainer.threads=1", "plot=false"]
    name = load_config(EXPERIMENT).experiment.name
    taught_by = train(teacher(name, paths)).directory.path
    growth, seeds, draws = flux_balance(load_config(EXPERIMENT)), list[int](), []
    for run in sorted((Path(runs) / name).glob("seed-*")):
        seed = int(run.name.removeprefix("seed-"))
        own = [*paths, f"seed={seed}", f"split.seed={seed}", "null_models=false"]
        quiet = train(without_messages(load_config(EXPERIMENT, own), load_config(EXPERIMENT).trainer.epochs))
        again = train(load_config(EXPERIMENT, [*own, f"experiment.name={name}-taught", f"start_from={taught_by}"]))
        seeds.append(seed)
        draws.append(draw(run, growth, {TAUGHT: again.directory.path, QUIET: quiet.directory.path}, data))
    write_json(
        Path(out),
        {
            "command": "python -m benchmarks.keio_taught OUT RUNS",
            "experiment": name,
            "processor": processor_name(),
            "draws": [{"split_seed": seed, "media": of} for seed, of in zip(seeds, draws, strict=True)],
            "differences": ahead(draws),
        },
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
