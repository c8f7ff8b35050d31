"""What stands beside the model of one run: null model, intervals, controls and ceiling."""

from __future__ import annotations

import math

from dglcell.data.table import CLASSIFICATION
from dglcell.metrics import ResultRow
from dglcell.suites.controls import as_table, controls_of

LEADS = {"ahead": 0.04, "ahead_low": 0.01, "ahead_high": 0.07, "ahead_genes_low": -0.02, "ahead_genes_high": 0.1}

ROWS = [
    ResultRow("set_operator", "validation", "s_score", {"pearson": 0.9}),
    ResultRow("set_operator", "test", "s_score", {"pearson": 0.62, "ceiling": 0.75}),
    ResultRow("training mean", "test", "s_score", {"pearson": math.nan}, True),
    ResultRow("additive ridge", "test", "s_score", {"pearson": 0.26, "ahead_low": 0.3, "ahead_high": 0.4}, True),
    ResultRow("kernel ridge", "test", "s_score", {"pearson": 0.58, **LEADS}, True),
    ResultRow("without messages", "test", "s_score", {"pearson": 0.6}, True),
    ResultRow("permuted labels", "test", "s_score", {"pearson": -0.0104, "permutations": 20.0}, True),
    ResultRow("set_operator", "test", "lethal", {"average_precision": 0.5}, False, CLASSIFICATION),
    ResultRow("kernel ridge", "test", "lethal", {"average_precision": 0.50004}, True, CLASSIFICATION),
]


def test_the_best_null_model_is_no_control() -> None:
    score, lethal = controls_of("mine", 3, ROWS)
    assert (score.experiment, score.model, score.seed, score.measure) == ("mine", "set_operator", 3, "Pearson")
    assert (score.null, score.null_score) == ("kernel ridge", 0.58)
    assert (score.over_strains, score.over_genes) == ((0.01, 0.07), (-0.02, 0.1))
    assert (score.permuted, score.permutations, score.without_messages, score.ceiling) == (-0.0104, 20, 0.6, 0.75)
    assert score.is_compared
    assert (lethal.measure, lethal.null_score, lethal.is_compared) == ("AP", 0.50004, False)


def test_a_dash_says_what_was_not_measured() -> None:
    minus, dash = "\N{MINUS SIGN}", "\N{EN DASH}"
    *_, score, lethal = as_table(controls_of("mine", 3, ROWS)).splitlines()
    assert score == (
        "| `mine` | set_operator | 3 | Pearson of s_score | 0.620 | 0.580, kernel ridge | 0.040 | 0.010 to 0.070 | "
        f"{minus}0.020 to 0.100 | {minus}0.010 (20) | 0.600 | 0.750 |"
    )
    assert lethal.endswith(f"| 0.500 | 0.500, kernel ridge | {minus}4e{minus}05 |{f' {dash} |' * 5}")
    (alone,) = controls_of("mine", 0, ROWS[:2])
    assert as_table([alone]).splitlines()[-1].endswith(f"| 0.620 |{f' {dash} |' * 6} 0.750 |")
    (quiet,) = controls_of("mine", 0, ROWS[:2], passes_messages=False)
    assert as_table([quiet]).splitlines()[-1].endswith("| passes none | 0.750 |")
