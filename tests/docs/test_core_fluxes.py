"""The table on fluxes of new genes in the guide says what its committed record says."""

from __future__ import annotations

import json
import statistics
from typing import Any

import pytest
from scipy.stats import t

from tests.docs.pages import ROOT

RECORD = json.loads((ROOT / "benchmarks" / "results" / "core-fluxes.json").read_text(encoding="utf-8"))
GUIDE = (ROOT / "docs" / "guides" / "node-targets.md").read_text(encoding="utf-8")
MODEL = "hetero_cell"


def table() -> dict[str, list[str]]:
    """Return the first cell of each row below the heading → the others."""
    lines = GUIDE.partition("### Fluxes of strains with new genes")[2].partition("\n## ")[0].splitlines()
    rows = [
        [cell.strip().replace("**", "") for cell in line.strip("|").split("|")] for line in lines if line[:1] == "|"
    ]
    return {row[0]: row[1:] for row in rows[2:]}


def values(name: str, metric: str) -> list[float]:
    """Return a metric of each draw."""
    return [draw["scores"][name][metric] for draw in RECORD["draws"] if name in draw["scores"]]


@pytest.mark.parametrize("name", RECORD["draws"][0]["scores"])
def test_the_table_says_what_was_measured(name: str) -> None:
    r = values(name, "pearson")
    row = [str(len(r)), f"{statistics.fmean(r):.3f} ± {statistics.stdev(r):.3f}"]
    row += [f"{statistics.fmean(values(name, metric)):.{digits}f}" for metric, digits in (("r2", 3), ("mae", 2))]
    row += [f"{statistics.fmean(values(name, 'unbalanced')):.3f}"]
    lead = [own - other for own, other in zip(values(MODEL, "pearson"), r, strict=False)]  # first draws have all
    mean = statistics.fmean(lead)
    half = t.ppf(0.975, len(lead) - 1) * statistics.stdev(lead) / len(lead) ** 0.5
    ahead = RECORD["ahead" if len(r) == len(RECORD["draws"]) else "ahead_on_first_draws"]
    assert ahead.get(name, {}).get("pearson", [0, 0, 0]) == pytest.approx([mean, mean - half, mean + half], abs=1e-4)
    said = f"{mean:.3f} ({mean - half:.3f} to {mean + half:.3f})".replace("-", "\N{MINUS SIGN}")
    assert table()[name] == [*row, "\N{EN DASH}" if name == MODEL else said]


def test_the_table_has_no_other_rows() -> None:
    assert table().keys() == RECORD["draws"][0]["scores"].keys()


SHARES = json.loads((ROOT / "benchmarks" / "results" / "label-shares.json").read_text(encoding="utf-8"))["summary"]
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
    record = json.loads((ROOT / "benchmarks" / "results" / "label-shares.json").read_text(encoding="utf-8"))
    both = "growth and fluxes together"
    draws = [one["shares"]["0.01"]["scores"] for one in record["draws"] if both in one["shares"]["0.01"]["scores"]]
    together, alone = (" and ".join(f"{one[name]['pearson']:.3f}" for one in draws) for name in (both, "untaught"))
    assert f"{together} on draws 0 and 1, where growth alone has {alone}." in GUIDE


MEDIA = json.loads((ROOT / "benchmarks" / "results" / "new-media.json").read_text(encoding="utf-8"))


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


TAUGHT = json.loads((ROOT / "benchmarks" / "results" / "keio-taught.json").read_text(encoding="utf-8"))["draws"]
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


CRISPRI = json.loads((ROOT / "benchmarks" / "results" / "crispri-taught.json").read_text(encoding="utf-8"))["summary"]
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
