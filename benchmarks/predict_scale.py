"""Predictions of all triples of genes: ``python benchmarks/predict_scale.py OUT``.

Two cells: the E. coli core model of the quickstart (137 genes, all 419,220 triples), and the generated cell graph of
yeast size (6,607 genes, nine networks), of whose 4.8e10 triples the first are predicted for about ``BUDGET`` seconds.
Weights are fresh: speed does not depend on them. Predictions are written to Parquet as by ``dglcell predict
--all-triples``.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from dglcell.config import Config
from dglcell.config_io import load_config
from dglcell.data.transform import Normaliser
from dglcell.designs.combinations import Design
from dglcell.designs.predict import predict_design
from dglcell.files import write_json
from dglcell.graph.cell import build_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.memory import keep_freed_memory
from dglcell.models.build import make_model
from dglcell.models.config import HeteroCellConfig
from dglcell.models.prediction import count_parameters
from dglcell.models.set_operator_config import SetOperatorConfig
from dglcell.profiling.bench.generate import generated_cell
from dglcell.training.checkpoint import Trained
from dglcell.training.environment import environment

CONF = Path(__file__).resolve().parents[1] / "conf"
BUDGET = 20.0
TRIED = 512
BATCHES = {"set_operator": 4096, "hetero_cell": 512}


def trained(config: Config, cell: CellGraph, folder: Path) -> Trained:
    """A model with fresh weights, as if it had been trained."""
    torch.manual_seed(0)
    model = make_model(config.model, ResidentCell(cell.graph), 1).eval()
    path = folder / "weights"
    path.write_bytes(b"fresh")
    unit = Normaliser("none", torch.zeros(1), torch.ones(1))
    return Trained(model, unit, config, cell, ("trigenic_interaction",), ("",), 0, path)


def predict(model: Trained, strains: int, batch: int, folder: Path) -> float:
    """Seconds for the first triples; the file is checked for its number of rows."""
    import pyarrow.parquet as pq

    output = folder / "triples.parquet"
    design = Design.of(range(len(model.cell.genes)), 3, limit=strains)
    began = time.perf_counter()
    predict_design(model, design, output, batch_size=batch, report=lambda text: None)
    seconds = time.perf_counter() - began
    assert pq.read_metadata(output).num_rows == strains
    output.unlink()
    return seconds


def measure(name: str, config: Config, cell: CellGraph) -> dict[str, Any]:
    """Strains per second of one model over one cell, for all triples or as many as the budget allows."""
    kind, total = config.model.name, math.comb(len(cell.genes), 3)
    with tempfile.TemporaryDirectory() as made:
        folder, batch = Path(made), BATCHES[kind]
        model = trained(config, cell, folder)
        predict(model, min(TRIED, total), batch, folder)
        rate = min(TRIED, total) / predict(model, min(TRIED, total), batch, folder)
        strains = total if total < 1e6 else max(TRIED, min(total, int(rate * BUDGET)))
        seconds = predict(model, strains, batch, folder)
    return {
        "cell": name,
        "genes": len(cell.genes),
        "edges": cell.graph.num_edges(),
        "model": kind,
        "strategy": getattr(config.model, "strategy", None),
        "layers": config.model.layers,
        "hidden": config.model.hidden,
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
    keep_freed_memory()
    quickstart = load_config(CONF / "quickstart.yaml")
    core, yeast = build_cell(quickstart.cell, None), generated_cell()
    local = SetOperatorConfig(hidden=32, layers=2)
    plain = HeteroCellConfig(hidden=64, layers=2, metabolism=False)
    cases = [
        ("e_coli_core", quickstart, core),
        ("e_coli_core", dataclasses.replace(quickstart, model=local), core),
        ("yeast_size", dataclasses.replace(quickstart, model=plain), yeast),
        ("yeast_size", dataclasses.replace(quickstart, model=dataclasses.replace(local, hidden=64)), yeast),
    ]
    rows = []
    for name, config, cell in cases:
        rows.append(measure(name, config, cell))
        print(json.dumps(rows[-1]), flush=True)
    command = shlex.join(["python", "benchmarks/predict_scale.py", *sys.argv[1:]])
    write_json(Path(sys.argv[1]), {"environment": environment(command), "rows": rows})


if __name__ == "__main__":
    main()
