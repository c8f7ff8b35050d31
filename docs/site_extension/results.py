"""Results of experiments: those that are committed as a run left them, and those that the page on accuracy states."""

from __future__ import annotations

import json
import math
import re
import shlex
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dglcell.config import Config
from dglcell.metrics import COLUMNS
from dglcell.training.checkpoint import FREE_KEYS
from site_extension.markdown import code, table

RESULTS = "docs/results"
STATED = "docs/accuracy.md"
TITLES = {metric: title for columns in COLUMNS.values() for metric, title in columns.items() if metric != "n"}


def committed(root: Path, config: Config) -> dict[int, dict[str, Any]]:
    """Seed → ``results.json`` of a run with what stands beside it, as far as they are committed."""
    found = {}
    for path in sorted((root / RESULTS / config.experiment.name).glob("seed-*/results.json")):
        record = json.loads(path.read_text())
        for name in ("environment", "usage"):
            file = path.with_name(f"{name}.json")
            record[name] = json.loads(file.read_text()) if file.is_file() else {}
        metrics = path.with_name("metrics.jsonl")
        lines = metrics.read_text().splitlines() if metrics.is_file() else []
        record["metrics"] = [json.loads(line) for line in lines]
        found[int(path.parent.name.removeprefix("seed-"))] = record
    return dict(sorted(found.items()))


def stated_rows(root: Path, file: Path) -> dict[str, str]:
    """Seed → row of the table of numbers in `STATED` that is about this experiment."""
    found, current = {}, ""
    for line in (root / STATED).read_text().splitlines():
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
    decimals = {metric: _decimals(one.get(metric) for many in rows.values() for one in many) for metric in metrics}
    body = [
        (*key, *(_spread([one.get(metric) for one in rows[key]], decimals[metric]) for metric in metrics))
        # The question is what happens on the test part; the order of models is the runs'.
        for key in sorted(rows, key=lambda key: (key[0], key[1] != "test"))
    ]
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


def _decimals(values: Iterable[float | None]) -> int:
    """The same for a whole column: errors of small scores would all be 0.000."""
    return 3 if max((abs(value) for value in values if value is not None), default=1.0) >= 0.1 else 6


def _spread(values: Sequence[float | None], decimals: int) -> str:
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return "-"
    mean = f"{statistics.fmean(known):.{decimals}f}"
    if len(known) < 2:
        return mean
    return f"{mean} ± {statistics.stdev(known):.{decimals}f}".replace(" ", "\N{NO-BREAK SPACE}")


def overrides(record: dict[str, Any]) -> list[str]:
    """The keys that the run's command changed and that change its result."""
    words = shlex.split(record["environment"].get("command", ""))
    pairs = [word for word in words if "=" in word and not word.startswith("-")]
    free = tuple(key for key in FREE_KEYS if key not in ("trainer.epochs", "trainer.checkpoint"))
    return [pair for pair in pairs if not pair.startswith((*free, "plot_every", "plot_points"))]


def cost(found: dict[int, dict[str, Any]]) -> str:
    """What each run took, as far as it was recorded."""
    rows = []
    for seed, record in found.items():
        seconds = [row["seconds"] for row in record["metrics"] if row.get("seconds") is not None]
        peak = record["usage"].get("peak_memory_bytes")
        if not seconds and peak is None:
            continue
        per_epoch = f"{statistics.fmean(seconds):.1f}" if seconds else "-"
        total = f"{sum(seconds) / 60:.1f}" if seconds else "-"
        memory = f"{peak / 1e6:,.0f}" if peak else "not recorded"
        rows.append((seed, len(seconds) or "-", per_epoch, total, memory))
    if not rows:
        return "The committed runs have no record of time and memory.\n"
    header = ("seed", "epochs", "seconds per epoch", "minutes of training", "peak memory, MB")
    return table(header, rows, "rrrrr") + (
        "\nOn machines shared with other work: upper bounds. Evaluation and null models come on top.\n"
    )


def stated_table(root: Path, rows: Sequence[str]) -> str:
    """Those rows under the table's header."""
    if not rows:
        return "Nothing to compare with yet. A run ends with its own table and null models.\n"
    lines = (root / STATED).read_text().splitlines()
    header = next(line for line in lines if line.startswith("| experiment |"))
    return "\n".join([header, lines[lines.index(header) + 1], *rows]) + "\n"
