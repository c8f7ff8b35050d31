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
CLEAR = (
    "the own graph is better than the wild type's",
    "the own graph is worse than the wild type's",
    "messages over the own graph are better than none",
    "messages over the own graph are worse than none",
)
WILD_TYPE = "_wild_type"
"""Names of experiments end so that pass messages over the wild type's graph, and else are another one."""


def pages(root: Path, experiments: list[tuple[str, Config]]) -> dict[str, str]:
    """The table, with measured strains first; experiments are page and configuration."""
    measured, computed, missing = [], [], []
    models: set[str] = set()
    for page, config in experiments:
        record = committed(root).get(config.experiment.name)
        row = _row(page, config, record) if record else None
        if row is None:
            missing.append(f"[{code(config.experiment.name)}](_generated/experiments/{page}.md)")
        elif config.data.source.name != "insilico":
            measured.append((row[0], "measured", *row[1:]))
        else:
            model = str(config.data.source.insilico.model)
            if model not in models:
                models.add(model)
                computed.append((f"**{model}**", "computed", "all", "1.000", *["–"] * 4, "FBA itself", "–", "–"))
            computed.append((row[0], "computed", *row[1:]))
    return {
        "parts/results.md": block("{rst-class} sortable", "") + "\n" + table(HEADER, measured + computed, ALIGN),
        "parts/graphs.md": _graphs(root, experiments),
        "parts/not-measured.md": f"No results are committed of {', '.join(missing)}.\n",
    }


def _graphs(root: Path, experiments: list[tuple[str, Config]]) -> str:
    """A row for each experiment whose network was measured over the wild type's graph, too, and without messages.

    Below the table stands of which rows the intervals do not include zero.
    """
    found: list[tuple[str, ...]] = []
    clear: dict[str, list[str]] = {text: [] for text in CLEAR}
    for page, config in experiments:
        name = config.experiment.name
        record, other = committed(root).get(name), committed(root).get(name + WILD_TYPE)
        if record is None or other is None:
            continue
        models, others = record.by_model(), other.by_model()
        own, wild, without = next(iter(models.values())), next(iter(others.values())), models[WITHOUT]
        link = f"[{code(name)}](_generated/experiments/{page}.md)"
        differences = [interval(own, theirs) for theirs in (wild, without)]
        for (better, worse), difference in zip((CLEAR[:2], CLEAR[2:]), differences, strict=True):
            if difference and difference[1] * difference[2] > 0:
                clear[better if difference[0] > 0 else worse].append(code(name))
        scores, shown = map(mean, (own, wild, without)), map(as_text, differences)
        found.append((link, TITLES[record.metric], *scores, *shown, str(len(own))))
    said = [f"- {text}: {', '.join(names) or 'none'}" for text, names in clear.items()]
    heading = f"Rows whose interval does not include zero, of {len(found)}:\n"
    return "\n".join([table(GRAPHS, found, "llrrrrrr"), heading, *said, ""])


def _row(page: str, config: Config, record: Record) -> tuple[str, ...] | None:
    """A row where there are a score of a network and one of a baseline."""
    one = Comparison.of(record)
    if one is None:
        return None
    together = one.together if one.together.keys() >= one.own.keys() else {}
    kind = "" if record.metric == "pearson" else f"{TITLES[record.metric]}, "
    return (
        f"[{code(config.experiment.name)}](_generated/experiments/{page}.md)",
        f"{kind}{config.split.kind}",
        _bold(one.own, one.theirs),
        mean(one.theirs),
        as_text(interval(one.own, one.theirs)),
        _bold(together, one.theirs) if together else "–",
        mean(one.without) if one.without else "–",
        code(one.model),
        one.baseline,
        str(len(one.own)),
    )


def _bold(own: dict[int, float], theirs: dict[int, float]) -> str:
    """The mean, bold where the interval of the difference from a baseline is above zero."""
    difference = interval(own, theirs)
    return f"**{mean(own)}**" if difference and difference[1] > 0 else mean(own)
