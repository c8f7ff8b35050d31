"""The one table of all results: measured strains first, then those whose labels a simulator made."""

from __future__ import annotations

from pathlib import Path

from dglcell.config.experiment import Config
from site_extension.markdown import block, code, table
from site_extension.results import TITLES, WITHOUT, Comparison, Record, as_text, committed, interval, mean

HEADER = ("experiment", "labels", "test strains", "score", "baseline's score", "difference", "both together",
          "without messages", "model", "strongest baseline", "draws")  # fmt: skip
ALIGN = "lllrrrrrllr"

GRAPHS = ("experiment", "measure", "own graph", "wild type's graph", "without messages", "own less wild type's",
          "own less without", "draws")  # fmt: skip
WILD_TYPE = "_wild_type"
"""Names of experiments end so that pass messages over the wild type's graph, and else are another one."""


def pages(root: Path, experiments: list[tuple[str, Config]]) -> dict[str, str]:
    """The table, with measured strains first; experiments are page and configuration."""
    measured, computed, missing = [], [], []
    models: set[str] = set()
    for page, config in experiments:
        record = committed(root).get(config.experiment.name)
        rows = _rows(page, config, record) if record else []
        if not rows:
            missing.append(f"[{code(config.experiment.name)}](_generated/experiments/{page}.md)")
        elif config.data.source.name != "insilico":
            measured += [(row[0], "measured", *row[1:]) for row in rows]
        else:
            model = str(config.data.source.insilico.model)
            if model not in models:
                models.add(model)
                computed.append((f"**{model}**", "computed", "all", "1.000", *["–"] * 4, "FBA itself", "–", "–"))
            computed += [(row[0], "computed", *row[1:]) for row in rows]
    return {
        "parts/results.md": block("{rst-class} sortable", "") + "\n" + table(HEADER, measured + computed, ALIGN),
        "parts/graphs.md": table(GRAPHS, _graphs(root, experiments), "llrrrrrr"),
        "parts/not-measured.md": f"No results are committed of {', '.join(missing)}.\n",
    }


def _graphs(root: Path, experiments: list[tuple[str, Config]]) -> list[tuple[str, ...]]:
    """A row for each experiment whose network was measured over the wild type's graph, too, and without messages."""
    found = []
    for page, config in experiments:
        name = config.experiment.name
        record, other = committed(root).get(name), committed(root).get(name + WILD_TYPE)
        if record is None or other is None:
            continue
        # Over all media together r mostly says in which medium all strains grow well.
        metric = "pearson_within" if any("pearson_within" in score.metrics for score in record.scores) else "pearson"
        models = record.by_model(metric=metric)
        own, wild, without = (
            next(iter(models.values())),
            next(iter(other.by_model(metric=metric).values())),
            models[WITHOUT],
        )
        link = f"[{code(name)}](_generated/experiments/{page}.md)"
        differences = (as_text(interval(own, theirs)) for theirs in (wild, without))
        found.append((link, TITLES[metric], *map(mean, (own, wild, without)), *differences, str(len(own))))
    return found


def _rows(page: str, config: Config, record: Record) -> list[tuple[str, ...]]:
    """A row for each part of the test strains with scores of its own, else one for all of them."""
    places = [place for place in record.places if place] or [""]
    found = []
    for place in places:
        one = Comparison.of(record, place)
        if one is None:
            continue
        together = one.together if one.together.keys() >= one.own.keys() else {}
        kind = "average precision, " if record.metric == "average_precision" else ""
        found.append(
            (
                f"[{code(config.experiment.name)}](_generated/experiments/{page}.md)",
                f"{kind}{config.split.kind}{f', {code(place)}' if place else ''}",
                _bold(one.own, one.theirs),
                mean(one.theirs),
                as_text(interval(one.own, one.theirs)),
                _bold(together, one.theirs) if together else "–",
                mean(one.without) if one.without else "–",
                code(one.model),
                one.baseline,
                str(len(one.own)),
            )
        )
    return found


def _bold(own: dict[int, float], theirs: dict[int, float]) -> str:
    """The mean, bold where the interval of the difference from a baseline is above zero."""
    difference = interval(own, theirs)
    return f"**{mean(own)}**" if difference and difference[1] > 0 else mean(own)
