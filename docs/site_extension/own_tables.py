"""The table of the benchmark of tables of one's own, from its committed results."""

from __future__ import annotations

import json
from pathlib import Path

from site_extension.markdown import code, table

FILE = Path("benchmarks/results/own-tables.json")

HEADER = ("table", "rows", "chosen", "minutes", "measure", "model", "best null model", "", "difference")


def pages(root: Path) -> dict[str, str]:
    """A row for each table."""
    results = json.loads((root / FILE).read_text())
    body = []
    for row in results["tables"]:
        chosen = row["chosen"]
        settings = (
            f"{code(chosen['model'])}, {code(chosen['link'])}, batch {chosen['batch_size']}, {chosen['epochs']} epochs"
        )
        splits = f", {row['splits']} splits" if row["splits"] > 1 else ""
        numbers = [f"{row[key]:.3f}" for key in ("score", "best_null_score")]
        body.append(
            (
                f"{code(row['table'])}: {row['about']}{splits}",
                f"{row['rows']:,}",
                settings,
                f"{row['cpu_minutes']:.1f}",
                row["metric"],
                numbers[0],
                row["best_null"],
                numbers[1],
                f"{row['difference']:+.3f}".replace("-", "−"),
            )
        )
    machine = results["machine"]
    note = (
        f"Minutes are those that `train` computed, with one thread on {machine['processor']}, which other work used at "
        "the same time. Of several splits they are those of the slowest.\n"
    )
    return {"parts/own-tables.md": table(HEADER, body, "lrlrlrlrr") + "\n" + note}
