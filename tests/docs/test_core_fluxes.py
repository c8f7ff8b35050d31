"""The tables on values of nodes, and on what they teach, say what their committed records say."""

from __future__ import annotations

import json
import re
import statistics
from typing import Any

import pytest
from scipy.stats import t

from tests.docs.pages import ROOT


def record(name: str) -> dict[str, Any]:
    """Return a committed record."""
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / name).read_text(encoding="utf-8"))
    return found


GUIDE = (ROOT / "docs" / "guides" / "node-targets.md").read_text(encoding="utf-8")
MODEL, NOTHING = "hetero_cell", "\N{EN DASH}"
NEW_GENES = {
    "### Fluxes of strains with new genes": record("core-fluxes.json"),
    "### Fluxes of a larger cell": record("ijo1366-fluxes.json"),
}
WEAKENED = record("flux-strengths.json")


def table(heading: str, number: int = 0) -> dict[str, list[str]]:
    """Return the first cell of each row of a table below the heading → the others."""
    lines = GUIDE.partition(heading)[2].partition("\n##")[0].split("\n\n")
    found = [block.splitlines() for block in lines if block.startswith("|")][number]
    rows = [[cell.strip().replace("**", "") for cell in line.strip("|").split("|")] for line in found]
    return {row[0]: row[1:] for row in rows[2:]}


def mean_and_spread(r: list[float]) -> str:
    return f"{statistics.fmean(r):.3f} ± {statistics.stdev(r):.3f}"


def in_words(mean: float, low: float, high: float) -> str:
    return f"{mean:.3f} ({low:.3f} to {high:.3f})".replace("-", "\N{MINUS SIGN}")


@pytest.mark.parametrize(
    ("heading", "name"), [(heading, name) for heading, of in NEW_GENES.items() for name in of["draws"][0]["scores"]]
)
def test_the_table_says_what_was_measured(heading: str, name: str) -> None:
    of = NEW_GENES[heading]
    scores = [draw["scores"] for draw in of["draws"]]

    def values(name: str, metric: str) -> list[float]:
        return [one[name][metric] for one in scores if name in one]

    r = values(name, "pearson")
    row = [str(len(r)), mean_and_spread(r)]
    row += [f"{statistics.fmean(values(name, metric)):.{digits}f}" for metric, digits in (("r2", 3), ("mae", 2))]
    row += [f"{statistics.fmean(values(name, 'unbalanced')):.3f}"]
    row[2] = row[2].replace("-", "\N{MINUS SIGN}")
    lead = [own - other for own, other in zip(values(MODEL, "pearson"), r, strict=False)]  # first draws have all
    mean = statistics.fmean(lead)
    half = t.ppf(0.975, len(lead) - 1) * statistics.stdev(lead) / len(lead) ** 0.5
    ahead = of["ahead" if len(r) == len(scores) else "ahead_on_first_draws"]
    assert ahead.get(name, {}).get("pearson", [0, 0, 0]) == pytest.approx([mean, mean - half, mean + half], abs=1e-4)
    said = in_words(mean, mean - half, mean + half)
    assert table(heading)[name] == [*row, NOTHING if name == MODEL else said]


@pytest.mark.parametrize("heading", NEW_GENES)
def test_the_table_has_no_other_rows(heading: str) -> None:
    assert table(heading).keys() == NEW_GENES[heading]["draws"][0]["scores"].keys()


TASKS = ("new pairs", "new strengths")


@pytest.mark.parametrize("name", WEAKENED["tasks"][TASKS[0]][0]["scores"])
def test_fluxes_of_weakened_genes(name: str) -> None:
    row = []
    for task in TASKS:
        row += [mean_and_spread([draw["scores"][name]["pearson"] for draw in WEAKENED["tasks"][task]])]
        row += [NOTHING if name == MODEL else in_words(*WEAKENED["ahead"][task]["fluxes"][name]["pearson"])]
    assert table("### Fluxes of weakened genes")[name] == row


def test_growth_of_weakened_genes() -> None:
    rows = table("### Fluxes of weakened genes", 1)
    for name, row in rows.items():
        expected = []
        for task in TASKS:
            expected += [mean_and_spread([draw["growth"][name]["pearson"] for draw in WEAKENED["tasks"][task]])]
            expected += [NOTHING if name == "model" else in_words(*WEAKENED["ahead"][task]["growth"][name])]
        assert row == expected
    best = {
        min(of["growth"], key=lambda name: of["growth"][name][0] if "rounds" not in name else 1)
        for of in WEAKENED["ahead"].values()
    }
    assert best < rows.keys()  # the strongest null models are shown


SHARES = record("label-shares.json")["summary"]
PREDICTORS = (
    *(
        "the model's fluxes, then ridge",
        "taught by fluxes",
        "untaught",
        "reaction kernel ridge",
        "mean of the best two",
    ),
    "kernel ridge of fluxes, then ridge",
)


@pytest.mark.parametrize("of_share", SHARES, ids=lambda one: f"{one['split']}-{one['layers']}-{one['share']}")
def test_growth_from_few_labels(of_share: dict[str, Any]) -> None:
    found = [of_share["pearson"][name] for name in PREDICTORS if name in of_share["pearson"]]
    assert len(found) == (4 if of_share["split"] == "random" else len(PREDICTORS))
    scores = " | ".join(f"{one['mean']:.3f} ± {one['sd']:.3f}" for one in found)
    share = f"{100 * float(of_share['share']):g} %"
    assert f"| {share} | {scores} |" in GUIDE


def test_growth_and_fluxes_together() -> None:
    both, found = "growth and fluxes together", record("label-shares.json")["draws"]
    draws = [one["shares"]["0.01"]["scores"] for one in found if both in one["shares"]["0.01"]["scores"]]
    together, alone = (" and ".join(f"{one[name]['pearson']:.3f}" for one in draws) for name in (both, "untaught"))
    assert f"{together} on draws 0 and 1, where growth alone has {alone}." in GUIDE


MEDIA = record("new-media.json")


@pytest.mark.parametrize("of_medium", MEDIA["draws"], ids=lambda one: one["medium"])
def test_growth_in_new_media(of_medium: dict[str, Any]) -> None:
    accuracy = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    kernel_ridge = "kernel ridge on lost reactions and medium"
    names = ("model", "without messages", kernel_ridge, "product of curves")
    model, quiet, ridge, curves = (of_medium["scores"][name]["pearson"] for name in names)
    row = (
        f"| {of_medium['medium']} | **{model:.3f}** | {quiet:.3f} | {ridge:.3f} | {curves:.3f} | {model - ridge:.3f} |"
    )
    assert row in accuracy
    of = MEDIA["ahead"]["scores"][kernel_ridge]
    low, high = of["ahead_over_genes"]
    assert f"the model is {of['ahead'][0]:.3f} ahead of it. At 95 %, this is {low:.3f} to {high:.3f}" in accuracy
    mean, low, high = MEDIA["ahead"]["scores"]["without messages"]["ahead"]
    assert f"{mean:.3f} ahead of the same model without messages ({low:.3f} to {high:.3f} over media)" in accuracy


TAUGHT = record("keio-taught.json")["draws"]
NAMES = {
    "taught by fluxes": "taught by fluxes",
    "the same model untaught": "model",
    "without messages, untaught": "without messages",
    "flux balance analysis, without training": "flux balance analysis",
}


@pytest.mark.parametrize("name", NAMES)
def test_what_fluxes_teach_of_measured_growth(name: str) -> None:
    accuracy = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    cells = []
    for medium in ("lb_22h", "mops_24h", "mops_48h"):
        r = [draw["media"][medium][NAMES[name]]["pearson"] for draw in TAUGHT]
        cells.append(f"{statistics.fmean(r):.3f}" + (f" ± {statistics.stdev(r):.3f}" if len(r) > 1 else ""))
    assert f"| {name} | {' | '.join(cells)} |" in accuracy


CRISPRI = record("crispri-taught.json")["summary"]
PREDICTORS_OF_CRISPRI = {
    "taught by fluxes": "taught by fluxes",
    "the same model untaught": "untaught",
    "flux balance analysis (linear programs)": "flux balance analysis",
    "kernel ridge over strains": "kernel ridge over strains",
    "the same, and it sees flux balance analysis": "kernel ridge over strains with flux balance",
    "additive ridge": "additive ridge",
}


@pytest.mark.parametrize("name", PREDICTORS_OF_CRISPRI)
def test_what_fluxes_teach_of_titrated_crispri(name: str) -> None:
    accuracy = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    of = CRISPRI[PREDICTORS_OF_CRISPRI[name]]
    lead = "\N{EN DASH}"
    if "taught_ahead" in of:
        mean, low, high = of["taught_ahead"]
        lead = f"{mean:.3f} ({low:.3f} to {high:.3f})".replace("-", "\N{MINUS SIGN}")
    shown = f"{of['mean']:.3f}".replace("-", "\N{MINUS SIGN}")
    assert f"| {name} | {shown} ± {of['sd']:.3f} | {lead} |" in accuracy


def test_what_messages_add() -> None:
    accuracy = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    rows = dict(
        re.findall(r"^\| ([^|]+) \| ([^|]+) \|", accuracy.partition("### Does the strain's own graph")[2], re.M)
    )
    quiet = "without messages"
    weakened = {task: in_words(*of["fluxes"][quiet]["pearson"]) for task, of in WEAKENED["ahead"].items()}
    assert rows["fluxes of pairs of weakened genes"] == weakened[TASKS[0]]
    assert rows["fluxes at new strengths"] == weakened[TASKS[1]]
    genome = NEW_GENES["### Fluxes of a larger cell"]["ahead"][quiet]["pearson"]
    fluxes = rows["fluxes of strains with new genes, *E. coli* core"], rows["fluxes of strains with new genes, iJO1366"]
    core = record("core-fluxes.json")["ahead_on_first_draws"][quiet]["pearson"]
    assert fluxes == (in_words(*core), in_words(*genome))
    media, of_deletions = (MEDIA["ahead"][key][quiet]["ahead"] for key in ("scores", "scores_of_deletions"))
    assert rows["the same in new media"] == f"{in_words(*media)}; deletions alone {in_words(*of_deletions)}"
