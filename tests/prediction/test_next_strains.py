"""The strains to measure next: a batch by each strategy, from tables and designs."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from dglcell.cli import main, next
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError
from dglcell.prediction import STRATEGIES, next_strains
from dglcell.prediction.design import Design
from dglcell.prediction.next_strains import OWN, Candidates, choose_next, most_uncertain_together
from dglcell.prediction.table import GenotypeTable
from dglcell.runs.directory import RunDirectory

GENES = tuple("abcdefgh")


def pairs(**columns: np.ndarray) -> Candidates:
    """All 28 pairs of eight genes with predictions."""
    return Candidates(Design.of(range(8), 2), GENES, columns, np.ones(28, bool), "growth")


def with_intervals(predicted: np.ndarray, half: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of predictions with intervals."""
    return {"predicted_growth": predicted, "low_growth": predicted - half, "high_growth": predicted + half}


def names(candidates: Candidates, chosen: np.ndarray) -> list[str]:
    """The genes of chosen strains, as texts."""
    return ["".join(genes) for genes in candidates.strains(chosen).genotypes]


def test_the_names_of_strategies_are_those_of_the_command() -> None:
    assert next.STRATEGIES == STRATEGIES


@given(st.integers(0, 1000), st.integers(1, 6))
def test_the_batch_is_the_greedy_maximum_of_a_determinant(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 3, (10, 4)).astype(float)
    rows[rows.sum(1) == 0] = 1
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    sd = rng.uniform(0.5, 2, 10)
    correlation = (1 - OWN) * rows @ rows.T + OWN * np.eye(10)
    covariance = sd[:, None] * correlation * sd
    expected: list[int] = []
    for _ in range(size):
        gains = {
            i: np.linalg.slogdet(covariance[np.ix_([*expected, i], [*expected, i])])[1]
            for i in range(10)
            if i not in expected
        }
        best = max(gains.values())
        found = most_uncertain_together(sparse.csr_matrix(rows), sd, len(expected) + 1)
        assert gains[int(found[-1])] == pytest.approx(best, abs=1e-9)
        expected = found.tolist()
    assert len(set(expected)) == size


def test_an_informative_batch_has_many_genes() -> None:
    half = np.array([1.05 if "a" in pair else 1.0 for pair in itertools.combinations(GENES, 2)])
    candidates = pairs(**with_intervals(np.zeros(28), half))
    chosen = names(candidates, choose_next(candidates, "informative", 4))
    assert sorted("".join(chosen)) == sorted(GENES)
    exact = pairs(**with_intervals(np.zeros(28), np.zeros(28)))
    assert len(set("".join(names(exact, choose_next(exact, "informative", 4))))) == 8


def test_effects_are_distances_from_the_median() -> None:
    predicted = np.ones(28)
    predicted[[3, 9, 20]] = [0.2, 1.5, 0.6]
    candidates = pairs(predicted_growth=predicted)
    assert choose_next(candidates, "effect", 3).tolist() == [3, 9, 20]


def test_the_surely_sick_have_low_upper_ends() -> None:
    predicted, half = np.ones(28), np.full(28, 0.1)
    predicted[[4, 5]], half[[4, 5]] = [0.1, 0.3], [0.9, 0.05]
    candidates = pairs(**with_intervals(predicted, half))
    assert choose_next(candidates, "sick", 2).tolist() == [5, 4]
    seeds = pairs(predicted_growth=predicted, sd_growth=half)
    assert choose_next(seeds, "sick", 1).tolist() == [5]
    classes = pairs(predicted_growth=predicted, probability_growth=np.linspace(0, 1, 28))
    assert choose_next(classes, "sick", 2).tolist() == [27, 26]
    assert classes.uncertainty is not None
    assert classes.uncertainty[14] > classes.uncertainty[27] == 0


def test_a_gene_has_few_strains_in_a_batch_as_long_as_others_are_left() -> None:
    predicted = np.array([float("a" not in pair) for pair in itertools.combinations(GENES, 2)])
    candidates = pairs(predicted_growth=predicted)
    assert all("a" in pair for pair in names(candidates, choose_next(candidates, "effect", 7)))
    limited = names(candidates, choose_next(candidates, "effect", 5, per_gene=2))
    assert max(map("".join(limited).count, GENES)) == 2
    assert limited[:2] == ["ab", "ac"]
    everything = names(candidates, choose_next(candidates, "effect", 28, per_gene=1))
    assert (len(set(everything)), everything[:2]) == (28, ["ab", "cd"])


def test_conditions_tell_strains_apart() -> None:
    media = Strains.from_names([["a"], ["a"], ["b"]], conditions={"medium": ["x", "y", "x"]})
    kinship = next_strains._kinship(media)
    np.testing.assert_allclose((kinship @ kinship.T).toarray(), [[1, 0.5, 0.5], [0.5, 1, 0], [0.5, 0, 1]])


def test_what_cannot_be_chosen_is_refused() -> None:
    candidates = pairs(predicted_growth=np.ones(28))
    with pytest.raises(ConfigError, match=r"--batch 29\n  expected: at most 28, of 28 without those"):
        choose_next(candidates, "effect", 29)
    for strategy in ("sick", "informative"):
        with pytest.raises(ConfigError, match=f"`--strategy {strategy}` needs to know how uncertain"):
            choose_next(candidates, strategy, 3)


def test_a_table_of_candidates_keeps_its_columns() -> None:
    strains = Strains.from_indices(GENES, [[0], [1], [2]])
    table = GenotypeTable(
        ["gene_1", "note"], [["a", "x"], ["b", "y"], ["c", "z"]], strains, np.array([True, False, True])
    )
    predicted = {"predicted_growth": np.array([0.9, 0.0, 0.1])}
    candidates = Candidates(table, GENES, predicted, table.is_known, "growth")
    chosen = choose_next(candidates, "effect", 2)
    found, columns = candidates.table(chosen)
    assert found.header == ["rank", "gene_1", "note"]
    assert found.rows == [["1", "a", "x"], ["2", "c", "z"]]
    assert columns["predicted_growth"].tolist() == [0.9, 0.1]


def test_the_command_writes_strains_that_were_not_measured(tiny_run: RunDirectory, tmp_path: Path) -> None:
    out = tmp_path / "next.csv"
    design = ["next", str(tiny_run.path), "--all-triples", "--limit", "300", "--batch", "12"]
    assert main([*design, "-o", str(out)]) == 0
    found = pd.read_csv(out)
    assert found.columns.tolist() == [
        "rank", "gene_1", "gene_2", "gene_3", "predicted_fitness", "low_fitness", "high_fitness",
    ]  # fmt: skip
    assert found["rank"].tolist() == list(range(1, 13))
    # The screen has all pairs, so that none is left.
    every_pair = ["next", str(tiny_run.path), "--all-pairs", "--limit", "50", "--batch", "9", "--strategy", "effect"]
    assert main([*every_pair, "-o", str(tmp_path / "pairs.csv")]) == 2
    assert main([*every_pair, "-o", str(tmp_path / "pairs.csv"), "--measured-too"]) == 0
    assert len(pd.read_csv(tmp_path / "pairs.csv")) == 9


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "among which strains shall be chosen?"),
        (["--all-singles", "--per-gene", "2"], "--per-gene is for the strategies effect and sick"),
        (["--all-singles", "--phenotype", "growth"], "strains are chosen by one phenotype"),
        (["--all-singles", "--interval", "1"], "intervals cannot have this coverage"),
        (["--all-singles", "-o", "next"], "the suffix does not say which format is wanted"),
    ],
)
def test_wrong_options_are_told(
    more: list[str], message: str, tiny_run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["next", str(tiny_run.path), *more]) == 2
    assert message in capsys.readouterr().err
