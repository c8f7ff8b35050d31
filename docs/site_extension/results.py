"""Results of experiments: those that are committed as a run left them, and those that the page on accuracy states."""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dglcell.config.experiment import Config
from dglcell.metrics import COLUMNS, ResultRow
from dglcell.report.run_files import NODES, result_rows
from dglcell.training.checkpoint import FREE_KEYS
from site_extension.markdown import code, table

RESULTS = "docs/results"
STATED = "docs/accuracy.md"
TITLES = {
    metric: title for columns in COLUMNS.values() for metric, title in columns.items() if metric not in ("n", "nodes")
}


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


def all_rows(record: dict[str, Any]) -> list[ResultRow]:
    """Rows of phenotypes and of values of nodes."""
    return result_rows([*record["rows"], *record.get(NODES, [])])


def stated_lines(root: Path, file: Path) -> list[str]:
    """The rows of the table in `STATED` that are about this experiment; ``file`` is relative to the root."""
    found, current = [], ""
    for line in (root / STATED).read_text().splitlines():
        if line.startswith("| "):
            first = cells_of(line)[0]
            current = current if first.startswith("the same") else first
            if f"`{file}`" in current:
                found.append(line)
    return found


def cells_of(line: str) -> list[str]:
    """The texts of a row."""
    return [part.strip() for part in line.strip("|").split("|")]


def stated_rows(root: Path, file: Path) -> dict[str, str]:
    """Seed → row of the table of numbers in `STATED` that is about this experiment with one seed."""
    lines = {cells_of(line)[1]: line for line in stated_lines(root, file.relative_to(root))}
    return {about.rpartition(", ")[2]: line for about, line in lines.items() if re.search(r", \d+$", about)}


def stated_cells(root: Path, file: Path) -> tuple[str, str]:
    """Scores of the model and of the best null model in `STATED`, those of several rows one after the other."""
    rows = [cells_of(line) for line in stated_lines(root, file)]
    own, null = ("<br>".join(row[column].replace("**", "") for row in rows) for column in (2, 3))
    return own, null


def expected(found: dict[int, dict[str, Any]]) -> str:
    """Mean over seeds, with the spread where there are several; the conditions of the first."""
    text = _means(record["rows"] for record in found.values())
    of_nodes = [record["nodes"] for record in found.values() if record.get("nodes")]
    if of_nodes:
        text += (
            "\nValues of nodes, where Pearson's r is the mean over nodes of the correlation across strains:\n\n"
            + _means(of_nodes)
        )
    about = next(iter(found.values()))["environment"]
    if about:
        packages, threads = about["packages"], about["threads"]
        sizes = ", ".join(f"{number:,} {part}" for part, number in about["strains"].items())
        hashes = ", ".join(f"{what} {code(digest[:12])}…" for what, digest in about["hashes"].items())
        commit = f", commit {code(about['git']['commit'][:12])}" if about["git"] else ""
        text += (
            f"\nPython {about['python']}, torch {packages['torch']}, DGL {packages['dgl']}, {about['devices'][0]}, "
            f"{threads} thread{'s' if threads > 1 else ''}{commit}; "
            f"strains: {sizes}; hashes: {hashes}.\n"
        )
    return text


def _means(of_seeds: Iterable[list[dict[str, Any]]]) -> str:
    """A table of metrics, by phenotype or name of values, part and model."""
    rows: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for row in itertools.chain.from_iterable(of_seeds):
        rows.setdefault((row["phenotype"], row["part"], row["model"]), []).append(row["metrics"])
    metrics = [m for m in TITLES if any(m in one for many in rows.values() for one in many)]
    decimals = {metric: _decimals(one.get(metric) for many in rows.values() for one in many) for metric in metrics}
    body = [
        (*key, *(_spread([one.get(metric) for one in rows[key]], decimals[metric]) for metric in metrics))
        # The question is what happens on the test part; the order of models is the runs'.
        for key in sorted(rows, key=lambda key: (key[0], key[1] != "test"))
    ]
    return table(("phenotype", "part", "model", *(TITLES[m] for m in metrics)), body, "lll" + "r" * len(metrics))


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


def stated_table(root: Path, rows: Sequence[str]) -> str:
    """Those rows under the table's header."""
    if not rows:
        return "Nothing to compare with yet. A run ends with its own table and null models.\n"
    lines = (root / STATED).read_text().splitlines()
    header = next(line for line in lines if line.startswith("| experiment |"))
    return "\n".join([header, lines[lines.index(header) + 1], *rows]) + "\n"
