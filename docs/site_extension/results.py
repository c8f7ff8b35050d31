"""Results of experiments: those that are committed as a run left them, and those that the README states."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dglcell.config import Config
from dglcell.training.results_table import COLUMNS
from site_extension.markdown import code, table

RESULTS = "docs/results"
TITLES = {metric: title for columns in COLUMNS.values() for metric, title in columns.items() if metric != "n"}


def committed(root: Path, config: Config) -> dict[int, dict[str, Any]]:
    """Seed → ``results.json`` of a run, as far as they are committed."""
    found = {}
    for path in sorted((root / RESULTS / config.experiment.name).glob("seed-*/results.json")):
        about = path.with_name("environment.json")
        record = json.loads(path.read_text())
        record["environment"] = json.loads(about.read_text()) if about.is_file() else {}
        found[int(path.parent.name.removeprefix("seed-"))] = record
    return dict(sorted(found.items()))


def readme_rows(root: Path, file: Path) -> dict[str, str]:
    """Seed → row of the README's table of numbers that is about this experiment."""
    found, current = {}, ""
    for line in (root / "README.md").read_text().splitlines():
        cells = [part.strip() for part in line.strip("|").split("|")]
        if not line.startswith("| ") or not re.search(r", \d+$", cells[min(1, len(cells) - 1)]):
            continue
        if not cells[0].startswith("the same"):
            current = cells[0]
        if f"`{file.relative_to(root)}`" in current:
            found[cells[1].rpartition(", ")[2]] = line
    return found


def expected(found: dict[int, dict[str, Any]]) -> str:
    """Mean over seeds, with the spread where there are several; the conditions of the first."""
    rows: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for record in found.values():
        for row in record["rows"]:
            rows.setdefault((row["phenotype"], row["part"], row["model"]), []).append(row["metrics"])
    metrics = [m for m in TITLES if any(m in one for many in rows.values() for one in many)]
    body = [(*key, *(_spread([one.get(metric) for one in many]) for metric in metrics)) for key, many in rows.items()]
    text = table(("phenotype", "part", "model", *(TITLES[m] for m in metrics)), body, "lll" + "r" * len(metrics))
    about = next(iter(found.values()))["environment"]
    if about:
        packages, threads = about["packages"], about["threads"]
        sizes = ", ".join(f"{number:,} {part}" for part, number in about["strains"].items())
        hashes = ", ".join(f"{what} {code(digest[:12])}…" for what, digest in about["hashes"].items())
        text += (
            f"\nPython {about['python']}, torch {packages['torch']}, DGL {packages['dgl']}, {about['devices'][0]}, "
            f"{threads} thread{'s' if threads > 1 else ''}, commit {code(about['git']['commit'][:12])}; "
            f"strains: {sizes}; hashes: {hashes}.\n"
        )
    return text


def _spread(values: list[Any]) -> str:
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return "-"
    # Errors of small scores would all be 0.000; mean and spread have the same number of decimals.
    decimals = 3 if max(map(abs, known)) >= 0.1 else 6
    mean = f"{statistics.fmean(known):.{decimals}f}"
    return mean if len(known) < 2 else f"{mean} ± {statistics.stdev(known):.{decimals}f}"


def stated_table(root: Path, rows: Sequence[str]) -> str:
    """The README's rows under its header."""
    if not rows:
        return "Nothing to compare with yet. A run ends with its own table and null models.\n"
    lines = (root / "README.md").read_text().splitlines()
    header = next(line for line in lines if line.startswith("| experiment |"))
    return "\n".join([header, lines[lines.index(header) + 1], *rows]) + "\n"
