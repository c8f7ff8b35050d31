"""The benchmark chart, from the committed results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from site_extension.markdown import code, table

RESULTS = "benchmarks/results/training-step-cpu.json"
GRID = "benchmarks/results/training-step-grid-cpu.json"
OURS = {
    "auto": "auto",
    "difference:auto": "difference",
    "node_mask:auto": "node_mask",
    "node_mask:csr": "node_mask, kernel csr",
}
OTHERS = {
    "pyg_spmm": "PyG, shared graph (EdgeIndex)",
    "dgl_edge_subgraph": "DGL, edge_subgraph per strain",
    "pyg_replicated_compiled": "PyG, replicated, compiled",
    "pyg_replicated": "PyG, replicated",
    "pyg_replicated_kept_memory": "PyG, replicated, freed memory kept",
}
BAR, GAP, LEFT, WIDTH = 22, 8, 250, 430


def pages(root: Path) -> dict[str, str]:
    """The chart, and its numbers as a table."""
    results = json.loads((root / RESULTS).read_text())
    return {
        "parts/training-step.svg": svg(chosen(results["rows"], batch=8, layers=3)),
        "parts/training-step.md": numbers(results),
        "parts/training-step-grid.md": grid(json.loads((root / GRID).read_text())["rows"]),
    }


def name(row: dict[str, Any]) -> str:
    """What a method is called on the page."""
    return (OURS | OTHERS)[row["method"]]


def chosen(rows: list[dict[str, Any]], batch: int, layers: int) -> list[dict[str, Any]]:
    """The rows of one setting that came to an end, fastest first."""
    found = [row for row in rows if (row["batch"], row["layers"], row["status"]) == (batch, layers, "ok")]
    return sorted(found, key=lambda row: row["seconds_per_step"])


def svg(rows: list[dict[str, Any]]) -> str:
    """Horizontal bars: strains per second."""
    height = len(rows) * (BAR + GAP) + GAP
    most = max(row["samples_per_second"] for row in rows)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 90} {height}" font-size="14">']
    for number, row in enumerate(rows):
        y = GAP + number * (BAR + GAP)
        width = max(2.0, WIDTH * row["samples_per_second"] / most)
        kind = "ours" if row["method"] in OURS else "other"
        middle = y + BAR * 0.72
        parts += [
            f'<text x="{LEFT - 10}" y="{middle:.1f}" text-anchor="end">{name(row)}</text>',
            f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>',
            f'<text x="{LEFT + width + 8:.1f}" y="{middle:.1f}">{row["samples_per_second"]:.2f}</text>',
        ]
    return "".join([*parts, "</svg>\n"])


def numbers(results: dict[str, Any]) -> str:
    """All rows, and the conditions they were measured in."""
    about = results["environment"]
    packages = about["packages"]
    rows = sorted(results["rows"], key=lambda row: (row["layers"], row["batch"], row["seconds_per_step"] or 1e9))
    body = [
        (
            row["batch"],
            row["layers"],
            code(name(row)) if row["method"] in OURS else name(row),
            f"{1e3 * row['seconds_per_step']:,.0f}" if row["status"] == "ok" else row["status"].replace("_", " "),
            f"{row['samples_per_second']:.2f}" if row["status"] == "ok" else "",
            f"{row['peak_memory_bytes'] / 1e6:,.0f}" if row["peak_memory_bytes"] else "",
        )
        for row in rows
    ]
    conditions = (
        f"Measured with {about['threads']} threads of an {about['processor']}, Python {about['python']}, torch "
        f"{packages['torch']}, DGL {packages['dgl']}, PyG {packages['torch_geometric']}; {about['cell']}; "
        f"{about['nodes']['gene']:,} genes, {sum(about['relations'].values()):,} stored edges in "
        f"{len(about['relations'])} networks; GIN, H = 64, three deletions per strain, float32. "
        f"Largest difference between the methods in float64 before timing: {about['largest_difference']:g}. "
        f"Every row stands in `{RESULTS}`.\n"
    )
    header = ("B", "L", "method", "ms per step", "strains/s", "peak MB")
    return f"{conditions}\n{table(header, body, 'rrlrrr')}"


def grid(rows: list[dict[str, Any]]) -> str:
    """``auto`` beside the replicated graph, a line for each setting."""
    settings: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (row["batch"], row["hidden"], row["layers"], row["conv"])):
        key = (row["conv"].upper(), row["batch"], row["hidden"], row["layers"])
        settings.setdefault(key, {})[row["method"]] = row
    body = [
        (*key, *_side(by["pyg_replicated"]), *_side(by["auto"]), _ratio(by["auto"])) for key, by in settings.items()
    ]
    header = ("", "B", "H", "L", "PyG, replicated: ms", "MB", f"{code('auto')}: ms", "MB", "×")
    return f"Milliseconds per step and peak memory; `{GRID}`.\n\n{table(header, body, 'l' + 'r' * 8)}"


def _side(row: dict[str, Any]) -> tuple[str, str]:
    """Milliseconds and memory, or why there are none."""
    if row["status"] != "ok":
        return row["status"].replace("_", " "), ""
    return f"{1e3 * row['seconds_per_step']:,.0f}", f"{row['peak_memory_bytes'] / 1e6:,.0f}"


def _ratio(row: dict[str, Any]) -> str:
    return f"{row['ratio_to_pyg_replicated']:.1f}" if row["ratio_to_pyg_replicated"] else ""
