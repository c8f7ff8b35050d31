"""The tables of what predicts new genes, from their committed results."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from site_extension.markdown import code, table

FOLDER, PATTERN = Path("benchmarks/results"), "new-genes-of-*.json"

HEADER = ("predictor", "r of each draw", "r", "R²", "Spearman", "MAE", "model’s difference in r", "over genes")

SHOWN = (
    "model",
    "rounds without training",
    "untrained bound, with blocked reactions",
    "reaction kernel ridge, with blocked reactions",
    "mean of the best two, with blocked reactions",
    "boosted trees, with blocked reactions",
    "untrained bound, by gene rules",
    "reaction kernel ridge, by gene rules",
    "mean of the best two, by gene rules",
    "boosted trees, by gene rules",
    "multiplicative, by gene rules",
    "without messages",
)
"""Predictors, in the order of the table; the files have all of them."""


NO_NULLS = ("model", "rounds without training", "without messages")


def pages(root: Path) -> dict[str, str]:
    """A table for each experiment that was measured."""
    files = sorted((root / FOLDER).glob(PATTERN))
    parts = [_experiment(json.loads(file.read_text(encoding="utf-8")), file.name) for file in files]
    return {"parts/new-genes.md": "\n".join(parts)}


def _experiment(found: dict[str, Any], file: str) -> str:
    draws = [draw["scores"] for draw in found["draws"]]
    rows = [_row(name, draws, found["differences"].get(name)) for name in SHOWN if name in draws[0]]
    strains = sum(draw["strains"] for draw in found["draws"])
    note = f"{strains:,} test strains of {len(draws)} draws (`{FOLDER}/{file}`). "
    note += _of_part(found["all_genes_new"], "whose genes are all new")
    note += _of_part(found["without_bound"], "of which no training strain loses a part by gene rules")
    return f"{code('conf/' + found['experiment'] + '.yaml')}\n\n{table(HEADER, rows, 'llrrrrll')}\n{note}\n"


def _of_part(part: list[dict[str, Any]], which: str) -> str:
    """A sentence on some of the strains."""
    draws = [one["scores"] for one in part if one["scores"]["model"]["pearson"] is not None]
    known = [name for name in draws[0] if all(draw.get(name, {}).get("pearson") is not None for draw in draws)]
    best = max((name for name in known if name not in NO_NULLS), key=lambda name: _mean(draws, name, "pearson"))
    strains = sum(one["strains"] for one in part)
    own, null = (
        f"{_mean(draws, n, 'pearson'):.3f} (Spearman {_mean(draws, n, 'spearman'):.3f})" for n in ("model", best)
    )
    return f"For the {strains:,} {which} the model has a mean r of {own}, and the best null model, {best}, {null}. "


def _row(name: str, draws: list[dict[str, Any]], difference: dict[str, list[float]] | None) -> tuple[str, ...]:
    each = ", ".join(f"{draw[name]['pearson']:.3f}" for draw in draws)
    means = (_mean(draws, name, metric) for metric in ("pearson", "r2", "spearman"))
    numbers = (*(f"{value:.3f}" for value in means), f"{_mean(draws, name, 'mae'):.4f}")
    if difference is None:
        return (name, each, *numbers, "", "")
    mean, low, high = difference["pearson"]
    over_genes = (
        "{:.3f} to {:.3f}".format(*difference["pearson_over_genes"]) if "pearson_over_genes" in difference else ""
    )
    intervals = f"{mean:+.3f} ({low:.3f} to {high:.3f})", over_genes
    return (name, each, *numbers, *(text.replace("-", "−") for text in intervals))


def _mean(draws: list[dict[str, Any]], name: str, metric: str) -> float:
    return statistics.fmean(draw[name][metric] for draw in draws)
