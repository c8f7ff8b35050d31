"""The tables of suites, from the results that are committed."""

from __future__ import annotations

from pathlib import Path

from dglcell.suites.suite import read_suite
from dglcell.suites.table import as_markdown, table_rows
from site_extension.results import all_rows, committed


def pages(root: Path) -> dict[str, str]:
    """A table for each suite of the package, as `dglcell benchmark` writes it, without what stands above it."""
    made = {}
    for file in sorted((root / "conf" / "suites").glob("*.yaml")):
        suite = read_suite(file)
        entries = suite.entries()
        results = {
            (entry.config.experiment.name, seed): all_rows(record)
            for entry in entries
            for seed, record in committed(root, entry.config).items()
        }
        rows = table_rows(entries, sorted({seed for _, seed in results}), results)
        text = as_markdown(suite, rows)
        made[f"parts/suite-{suite.name}.md"] = text[text.index("\nOf ") + 1 :]
    return made
