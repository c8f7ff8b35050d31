"""Time predictions of all triples of genes: ``python -m benchmarks.predict_scale OUT``.

The E. coli core model (137 genes, 419,220 triples), and the generated cell graph of yeast size (6,607 genes, nine
networks, 4.8e10 triples): the first triples are predicted for about ``BUDGET`` seconds. With ``--raw FOLDER`` also over
the public networks of conf/101-collins2007. Models that can are measured with and without
computing once what triples with genes in common share (``shared``).

Weights are fresh: speed does not depend on them. Genes are shuffled. Predictions are written to Parquet as by ``dglcell
predict --all-triples``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.cells import generated_cell
from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.data.dataset import Normaliser
from dglcell.files.atomic import write_json
from dglcell.graph.cell import build_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.machine import keep_freed_memory, processor_name
from dglcell.models.config import HeteroCellConfig, SetOperatorConfig
from dglcell.models.model import count_parameters, make_model
from dglcell.prediction.design import Design
from dglcell.prediction.predict import WORTH_SHARING, predict_design
from dglcell.runs import RunDirectory, environment
from dglcell.training.checkpoint import Trained

CONF = Path(__file__).resolve().parents[1] / "conf"
BUDGET = 20.0
TRIED = 512
BATCHES = {"set_operator": 4096, "hetero_cell": 128}


def trained(config: Config, cell: CellGraph, folder: Path) -> Trained:
    """Return a model with fresh weights, as if it had been trained."""
    torch.manual_seed(0)
    model = make_model(config.model, ResidentCell.of(cell), 1).eval()
    path = folder / "weights"
    path.write_bytes(b"fresh")
    unit = Normaliser("none", torch.zeros(1), torch.ones(1))
    return Trained(model, unit, config, cell, ("trigenic_interaction",), ("",), 0, path, "", RunDirectory(folder))


def predict(model: Trained, strains: int, batch: int, folder: Path, *, shared: bool) -> float:
    """Return the seconds for the first triples of shuffled genes; the file is checked for its number of rows."""
    import pyarrow.parquet as pq

    output, count = folder / "triples.parquet", len(model.cell.genes)
    design = Design.of(random.Random(0).sample(range(count), count), 3, limit=strains)
    worth = WORTH_SHARING if shared else sys.maxsize
    began = time.perf_counter()
    predict_design([model], design, output, batch_size=batch, worth_sharing=worth, report=lambda text: None)
    seconds = time.perf_counter() - began
    assert pq.read_metadata(output).num_rows == strains
    output.unlink()
    return seconds


def measure(name: str, config: Config, cell: CellGraph) -> Iterator[dict[str, Any]]:
    """Yield strains per second of one model over one cell, for all triples or as many as the budget allows."""
    with tempfile.TemporaryDirectory() as made:
        model = trained(config, cell, Path(made))
        for shared in (False, True) if model.model.shares_deletions else (False,):
            yield measure_one(name, config, model, Path(made), shared=shared)


def measure_one(name: str, config: Config, model: Trained, folder: Path, *, shared: bool) -> dict[str, Any]:
    """Measure one model as `measure` does, with or without computing once what triples share."""
    cell, kind, total = model.cell, config.model.name, math.comb(len(model.cell.genes), 3)
    batch = BATCHES[kind]
    tried = min(TRIED, total)
    predict(model, tried, batch, folder, shared=shared)
    rate = tried / predict(model, tried, batch, folder, shared=shared)
    strains = max(TRIED, min(total, int(rate * BUDGET)))
    seconds = predict(model, strains, batch, folder, shared=shared)
    return {
        "cell": name,
        "genes": len(cell.genes),
        "edges": cell.num_edges,
        "model": kind,
        "strategy": getattr(config.model, "strategy", None),
        "shared": shared,
        "layers": getattr(config.model, "layers", None),
        "hidden": getattr(config.model, "hidden", None),
        "parameters": count_parameters(model.model),
        "triples": total,
        "strains": strains,
        "batch_size": batch,
        "dtype": "float32",
        "seconds": seconds,
        "strains_per_s": strains / seconds,
    }


def main() -> None:
    """Measure both models over both cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="JSON")
    parser.add_argument("--raw", type=Path, metavar="FOLDER", help="public networks")
    options = parser.parse_args()
    keep_freed_memory()
    quickstart = load_config(CONF / "quickstart.yaml")
    core, yeast = build_cell(quickstart.cell, None), generated_cell()
    local = SetOperatorConfig(hidden=32, layers=2)
    metabolism = HeteroCellConfig(hidden=32, layers=2, pool=["gene", "reaction"])
    plain = HeteroCellConfig(hidden=64, layers=2, metabolism=False)
    cases = [
        ("e_coli_core", dataclasses.replace(quickstart, model=metabolism), core),
        ("e_coli_core", dataclasses.replace(quickstart, model=local), core),
        ("yeast_size", dataclasses.replace(quickstart, model=plain), yeast),
        ("yeast_size", dataclasses.replace(quickstart, model=dataclasses.replace(local, hidden=64)), yeast),
    ]
    if options.raw is not None:
        public = load_config(CONF / "101-collins2007" / "random.yaml")
        metabolic = HeteroCellConfig(hidden=64, layers=2)
        cell = build_cell(public.cell, options.raw)
        cases.append(("yeast_public", dataclasses.replace(quickstart, model=metabolic), cell))
    rows = []
    for case in cases:
        for row in measure(*case):
            rows.append(row)
            print(json.dumps(row), flush=True)
    command = "python -m benchmarks.predict_scale OUT" + (" --raw FOLDER" if options.raw else "")
    write_json(options.out, {"environment": environment(command) | {"processor": processor_name()}, "rows": rows})


if __name__ == "__main__":
    main()
