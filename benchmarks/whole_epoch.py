"""Train a numbered experiment for an epoch with ``dglcell train``, and time it.

Call ``python -m benchmarks.whole_epoch OUT EXPERIMENT [SIZE]``.

The published number of trigenic strains (332,313) with random labels, on the networks of the generated cell graph of
yeast size, all written to text files and read as any user's files are. SIZE takes a subset of so many strains, for a
model whose epoch would take days; what the whole would take is then reckoned from it and said to be so.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.cells import generated_cell
from dglcell.cli import main as dglcell
from dglcell.config.read import load_config
from dglcell.files.atomic import write_json
from dglcell.graph.catalogue import STRING_CHANNELS
from dglcell.graph.cell_graph import CellGraph
from dglcell.machine.processor import processor_name
from dglcell.models.config import DangoConfig
from dglcell.runs.directory import RunDirectory
from dglcell.runs.usage import environment

CONF = Path(__file__).resolve().parents[1] / "conf"
STRAINS = 332_313
QUERY_PAIRS = 200


def write_networks(cell: CellGraph, folder: Path, names: list[str]) -> dict[str, Any]:
    """Write edge tables of the relations, and return what an experiment says of them."""
    genes = np.array(cell.genes.names)
    (folder / "genes.txt").write_text("\n".join(genes) + "\n")
    networks: dict[str, Any] = {}
    for relation in cell.relations:
        if relation[1] in names:
            edges = cell.edges(relation)
            path = folder / f"{relation[1]}.csv.gz"
            with gzip.open(path, "wt", compresslevel=1) as table:
                table.write("source,target\n")
                np.savetxt(table, np.stack([genes[edges.src], genes[edges.dst]], 1), fmt="%s", delimiter=",")
            networks[relation[1]] = {
                "source": "",
                "path": str(path),
                "columns": ["source", "target"],
                "directed": True,
            }
    return networks


def write_strains(cell: CellGraph, path: Path) -> None:
    """Write triples of query pairs with array genes, each once, and normal labels."""
    rng = np.random.default_rng(0)
    genes = np.array(cell.genes.names)
    queries = rng.choice(len(genes), (QUERY_PAIRS, 2), replace=False)
    arrays = np.setdiff1d(np.arange(len(genes)), queries)
    chosen = rng.choice(QUERY_PAIRS * len(arrays), STRAINS, replace=False)
    triples = genes[np.column_stack([queries[chosen // len(arrays)], arrays[chosen % len(arrays)]])]
    labels = np.char.mod("%.5f", rng.normal(0, 0.05, STRAINS))
    with path.open("w") as table:
        table.write("gene_1,gene_2,gene_3,tau\n")
        np.savetxt(table, np.column_stack([triples, labels]), fmt="%s", delimiter=",")


def write_experiment(name: str, folder: Path, size: int | None) -> Path:
    """Write the experiment over these files, one epoch long."""
    config = load_config(CONF / f"{name}.yaml")
    cell = generated_cell()
    dango = isinstance(config.model, DangoConfig)
    names = [r[1] for r in cell.relations if not dango or r[1] in STRING_CHANNELS]
    networks = dict.fromkeys(config.cell.networks) | write_networks(cell, folder, names)
    write_strains(cell, folder / "strains.csv")
    columns = {"genes": ["gene_1", "gene_2", "gene_3"], "phenotypes": {"trigenic_interaction": "tau"}}
    own = {
        "extends": str(CONF / f"{name}.yaml"),
        "experiment": {"name": name},
        "cell": {
            "model": None,
            "metabolism": False,
            "genes": str(folder / "genes.txt"),
            "aliases": None,
            "symmetrise": False,
            "networks": networks,
        },
        "data": {"source": {"name": "csv", "csv": {"path": str(folder / "strains.csv"), **columns}}},
        "split": {"subset": {"size": size}} if size else {},
        "model": {"relations": names} if dango else {},
        "trainer": {"epochs": 1, "devices": 1, "strategy": "auto", "progress": False},
        "paths": {"runs": str(folder / "runs"), "data": str(folder / "data")},
        "null_models": False,
        "plot": False,
        "plot_every": 0,
    }
    path = folder / "experiment.yaml"
    path.write_text(json.dumps(own, indent=1))  # JSON is YAML
    return path


def measure(name: str, folder: Path, size: int | None) -> dict[str, Any]:
    """Train an epoch and read what the run says of it."""
    if dglcell(["train", str(write_experiment(name, folder, size))]):
        raise SystemExit("the run failed")
    run = RunDirectory(folder / "runs" / name / "seed-0")
    usage = json.loads(run.usage.read_text())
    trained = json.loads(run.environment.read_text())["strains"]["train"]
    whole = usage["seconds"] * (STRAINS / size if size else 1)
    return {
        "experiment": name,
        "strains": size or STRAINS,
        "trained": trained,
        "seconds": round(usage["seconds"], 1),
        "training_strains_per_second": round(trained / usage["seconds"], 2),
        "peak_memory_bytes": usage["peak_memory_bytes"],
        "hours_of_332_313_strains": round(whole / 3600, 2),
        "hours_are": "reckoned from a subset" if size else "measured",
    }


def main() -> None:
    """Measure one experiment and add its row to the file."""
    out, name = Path(sys.argv[1]), sys.argv[2]
    size = int(sys.argv[3]) if len(sys.argv) > 3 else None
    rows = json.loads(out.read_text())["rows"] if out.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        row = measure(name, Path(folder), size)
    print(json.dumps(row, indent=2))
    about = environment(" ".join(sys.argv)) | {"threads": torch.get_num_threads(), "processor": processor_name()}
    write_json(out, {"environment": about, "rows": [r for r in rows if r["experiment"] != name] + [row]})


if __name__ == "__main__":
    main()
