"""Expected times on a GPU, from counted operators, and what they mean for all triples; from the committed results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from site_extension.markdown import code, table

RESULTS = Path("benchmarks/results")
ROOFLINE, PREDICTIONS = RESULTS / "roofline.json", RESULTS / "predict-cpu.json"


def pages(root: Path) -> dict[str, str]:
    """A table of designs, and hours of all triples."""
    roofline, predictions = (json.loads((root / path).read_text()) for path in (ROOFLINE, PREDICTIONS))
    return {"parts/roofline.md": design_table(roofline), "parts/all-triples.md": triple_table(roofline, predictions)}


def design_table(content: dict[str, Any]) -> str:
    """Launches, bytes and expected milliseconds of every design."""
    device, setting, cell = content["device"], content["setting"], content["cell"]
    title = (
        f"Expected, not measured, for one {device['name']} ({device['copy'] / 1e12:g} TB/s copied, "
        f"{device['cache'] / 1e12:g} TB/s from the second cache, {device['flops'] / 1e12:g} TFLOP/s in bfloat16, "
        f"{device['launch'] * 1e6:g} µs a launch): {setting['conv'].upper()}, B = {setting['batch']}, "
        f"H = {setting['hidden']}, L = {setting['layers']}, {cell['edges']:,} edges; `{ROOFLINE}`."
    )
    header = ("design", "launches", "GB gathered", "GB else", "expected ms", "of launches", "expected strains/s")
    body = []
    for row in content["rows"]:
        seconds = row["expected_seconds"]
        body.append(
            (
                row["name"],
                f"{row['launches']:,}",
                f"{row['gathered_bytes'] / 1e9:,.0f}",
                f"{row['other_bytes'] / 1e9:,.0f}",
                f"{1e3 * seconds['step']:,.0f}",
                f"{1e3 * seconds['launches']:,.0f}",
                f"{row['expected_samples_per_second']:,.0f}",
            )
        )
    return f"{title}\n\n{table(header, body, 'lrrrrrr')}"


def triple_table(roofline: dict[str, Any], predictions: dict[str, Any]) -> str:
    """Hours of 465 million triples: from measured rates of two cores, and from the expected one of GPUs."""
    expected = roofline["prediction"]
    triples = expected["triples"]
    body = [
        (
            code(row["model"]),
            "two CPU cores, measured rate" + (", shared deletions" if row["shared"] else ""),
            f"{row['strains_per_s']:,.0f}",
            f"{triples / row['strains_per_s'] / 3600:,.1f}",
        )
        for row in predictions["rows"]
        if row["cell"] == "yeast_size"
    ]
    for gpus, hours in expected["expected_hours"].items():
        rate = int(gpus) * expected["strains_per_second"]
        where = f"{gpus} {roofline['device']['name']} with `--precision bf16`, **expected**, not measured"
        body.append((code("hetero_cell"), where, f"{rate:,.0f}", f"{hours:,.1f}"))
    title = (
        f"Hours for {triples / 1e6:,.0f} million triples over a cell graph of yeast size, two layers, H = 64, by "
        f"`{PREDICTIONS}` and `{ROOFLINE}`. Several GPUs share nothing, so that their rates add up:"
    )
    return f"{title}\n\n{table(('model', 'on', 'strains/s', 'hours'), body, 'llrr')}"
