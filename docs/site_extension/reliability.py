"""Whether calibrated probabilities of classes are right, from the committed results: a picture and a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from site_extension.markdown import table
from site_extension.plots import lines_over

FILE = Path("benchmarks/results/reliability.json")
NAMES = {"103-tong2004/set_operator_random": "tong2004"}
"""Experiment → name of its parts."""


def pages(root: Path) -> dict[str, str]:
    """The share of strains of the class over their probability, and the same in numbers."""
    experiments = json.loads((root / FILE).read_text(encoding="utf-8"))["experiments"]
    made = {}
    for experiment, name in NAMES.items():
        made[f"parts/reliability-{name}.svg"] = svg(experiments[experiment])
        made[f"parts/reliability-{name}.md"] = numbers(experiments[experiment])
    return made


def svg(measured: dict[str, Any]) -> str:
    """A line for probabilities and one for predictions; those that are right lie on the third."""
    lines = [("thin seed-2", "exact", [(0.0, 0.0), (1.0, 1.0)])]
    for number, kind in enumerate(("probabilities", "predictions")):
        curve = [(one["probability"], one["share"]) for one in measured[kind]["groups"]]
        lines.append((f"thick seed-{number}", kind, curve))
    return lines_over(lines, "probability")


def numbers(measured: dict[str, Any]) -> str:
    """The groups of strains with similar probabilities."""
    groups = measured["probabilities"]["groups"]
    rows = [
        (f"{one['probability']:.3f}", f"{one['share']:.3f} ± {one['standard_error']:.3f}", f"{one['n']:,}")
        for one in groups
    ]
    ours, raw = measured["probabilities"], measured["predictions"]
    about = (
        f"Of {measured['n']:,} test strains {measured['of_class']:,} are of the class. Probabilities are off by "
        f"{ours['error']:.4f} on average over groups of strains, and predictions by {raw['error']:.4f}. Their Brier "
        f"scores are {ours['brier']:.5f} and {raw['brier']:.5f}. Shares have their standard errors.\n"
    )
    return f"{about}\n{table(('mean probability', 'share of the class', 'strains'), rows, 'rrr')}"
