"""Hours that the prediction of all triples of yeast takes, from the committed rates."""

from __future__ import annotations

import json
from pathlib import Path

from site_extension.markdown import code, table

PREDICTIONS = Path("benchmarks/results/predict-cpu.json")
TRIPLES = 465_000_000


def pages(root: Path) -> dict[str, str]:
    """A table of models with measured rates."""
    body = [
        (
            code(row["model"]),
            "shared" if row["shared"] else "each on its own",
            f"{row['strains_per_s']:,.0f}",
            f"{TRIPLES / row['strains_per_s'] / 3600:,.1f}",
        )
        for row in json.loads((root / PREDICTIONS).read_text())["rows"]
        if row["cell"] == "yeast_size"
    ]
    title = (
        f"Hours for {TRIPLES / 1e6:,.0f} million triples over a cell graph of yeast size on two CPU cores, two layers, "
        f"H = 64, at the measured rates of `{PREDICTIONS}`:"
    )
    columns = ("model", "deletions in common", "strains/s", "hours")
    return {"parts/all-triples.md": f"{title}\n\n{table(columns, body, 'llrr')}"}
