"""Replays of strains chosen in batches, from the committed results: a picture and a table for each screen."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from site_extension.markdown import code, table
from site_extension.plots import lines_over

FILE = Path("benchmarks/results/next-strains.json")
SCREENS = {"101-collins2007/set_operator_random": "collins2007", "106-ecoli-core/deletions": "ecoli-core"}
"""Experiment → name of its parts."""

OWN = ("informative", "effect", "sick")
"""Strategies of `dglcell next`; the others are what they are compared with."""


def pages(root: Path) -> dict[str, str]:
    """Hits over the strains that are measured, and the same in numbers."""
    results = json.loads((root / FILE).read_text())
    made = {}
    for experiment, name in SCREENS.items():
        replayed = results["experiments"][experiment]
        made[f"parts/next-{name}.svg"] = svg(replayed, results["batch"])
        made[f"parts/next-{name}.md"] = numbers(replayed, results["batch"])
    return made


def svg(replayed: dict[str, Any], batch: int) -> str:
    """A line for each strategy: hits that are found, the mean over seeds."""
    lines = [
        (f"thick seed-{number}", strategy, list(enumerate([0.0, *found["lowest_hits"]])))
        for number, (strategy, found) in enumerate(replayed["mean"].items())
    ]
    in_strains = [(kind, label, [(batch * x, y) for x, y in curve]) for kind, label, curve in lines]
    return lines_over(in_strains, "strains measured")


def numbers(replayed: dict[str, Any], batch: int) -> str:
    """Hits after each batch, genes that are measured, and the correlation on test strains before the last batch."""
    seeds = list(replayed["seeds"].values())
    rounds = len(replayed["mean"]["random"]["lowest_hits"])
    of_batches = (f"hits in {batch * (k + 1)}" for k in range(rounds))
    header = ("strategy", *of_batches, "genes", f"r after {replayed['tested_after']}")
    body = []
    for strategy, found in replayed["mean"].items():
        hits = [f"{value:.1f}" for value in found["lowest_hits"]]
        hits[-1] += f" ± {found['lowest_hits_sd']:.1f}"
        row = (code(strategy) if strategy in OWN else strategy, *hits)
        body.append((*row, f"{found['genes']:.0f}", f"{found['test_pearson']:.3f}"))
    start = replayed["start"]
    first = statistics.fmean(seed["first_test_pearson"] for seed in seeds)
    of_pool = statistics.fmean(seed["hits_in_pool"]["lowest"] for seed in seeds)
    also = " and all single deletions" if start["viable"] is not None else ""
    about = (
        f"Means over {len(seeds)} seeds, with the standard deviation over seeds. {start['labelled']:,} strains{also} "
        f"are known at first, {start['validation']:,} calibrate intervals, and {start['pool']:,} may be chosen, of "
        f"which {of_pool:,.0f} are hits. Before the first batch, test strains have r {first:.3f}.\n"
    )
    return f"{about}\n{table(header, body, 'l' + 'r' * (len(header) - 1))}"
