"""Tables of errors against float64, from the committed results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from site_extension.markdown import code, table

FILE = Path("benchmarks/results/precision-cpu.json")
ERRORS = {
    "differences": "first difference",
    "second_differences": "second difference",
    "predictions": "prediction",
    "gradients": "gradient",
}
CELLS = {"generated": "Generated cell graph of yeast size", "public": "Public networks of yeast"}
PRECISIONS = {"float32": "float32", "tf32": "TF32 (emulated)", "bfloat16": "bfloat16"}

Row = dict[str, Any]


def pages(root: Path) -> dict[str, str]:
    """All errors, and first and second differences beside those of whole states."""
    results = json.loads((root / FILE).read_text())
    return {"parts/precision.md": every_table(results), "parts/precision-before.md": short_table(results)}


def every_table(results: dict[str, Any]) -> str:
    """A table for every cell, untrained and trained."""
    before, parts = results["before"], []
    training = results["training"]
    for cell, title in CELLS.items():
        for trained in (False, True):
            of_whole = [row for row in before["rows"] if _is(row, cell, trained)]
            rows = [*of_whole, *(row for row in results["rows"] if _is(row, cell, trained))]
            if not rows:
                continue
            model = (
                f"after {training['steps']} steps of AdamW on random targets (batches of {training['batch_size']})"
                if trained
                else "with fresh weights"
            )
            first = rows[-1]
            about = (
                f"**{title}** ({first['genes']:,} genes, {first['edges']:,} edges), GIN, L = {first['layers']}, "
                f"H = {first['hidden']}, {model}; {first['pairs']} pairs of genes. Second differences "
                f"are {percent(first['second_over_first'])} of first ones."
            )
            body = [(*_name(row), *(percent(row["median"][key]) for key in ERRORS)) for row in rows]
            parts.append(f"{about}\n\n{table(('', '', *ERRORS.values()), body, 'llrrrr')}")
    commit = before["environment"]["git"]["commit"][:7]
    note = (
        f"Whole states are those of `node_mask` in the version before ({code(commit)}), uncompiled, "
        "`bfloat16` under torch's autocast. TF32 is emulated by rounding the factors of Linear layers, in the version "
        f"before of all of them, now of differences. Maxima stand beside the medians in `{FILE}`.\n"
    )
    return "\n".join([*parts, note])


def short_table(results: dict[str, Any]) -> str:
    """First and second differences with fresh weights on the generated cell graph, before and now."""
    rows = [row for row in results["before"]["rows"] if _is(row, "generated", False)]
    rows += [row for row in results["rows"] if _is(row, "generated", False) and row["strategy"] == "difference"]
    header = ("", "", *(f"error of the {name}" for name in ("first difference", "second difference")))
    keys = list(ERRORS)[:2]
    body = [(*_name(row)[:1], PRECISIONS[row["precision"]], *(percent(row["median"][k]) for k in keys)) for row in rows]
    return table(header, body, "llrr")


def _is(row: Row, cell: str, trained: bool) -> bool:
    return row["cell"] == cell and row["trained"] == trained


def _name(row: Row) -> tuple[str, str]:
    whole = row["states"] == "whole"
    kind = "whole states" if whole else f"differences, {code(row['strategy'])}"
    return kind, PRECISIONS[row["precision"]] + (", compiled" if row.get("compiled") else "")


def percent(share: float) -> str:
    """Two digits; as a multiple from ten times on."""
    if share >= 10:
        return f"{float(f'{share:.2g}'):,.0f} ×"
    digits = f"{100 * share:.2g}"
    return f"{float(digits):.10f}".rstrip("0").rstrip(".") + " %"
