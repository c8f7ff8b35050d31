"""Fitted baselines in a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dglcell.api import load_cell
from dglcell.baselines.fit import ALL_NULL_MODELS, fit_null_models, load_models, save_models
from dglcell.baselines.problem import ANY, DELETIONS, MORE, NullModel, Problem
from dglcell.baselines.similarity import Reactions
from dglcell.data.columns import condition_columns
from dglcell.files.untrusted import UnreadableError
from tests.baselines.invented import pairs_of, problem_of, strains_of, unlike

CELL = load_cell("quickstart")


def growth(strains: int, seed: int = 0) -> Problem:
    """Pairs of the genes of *E. coli* core, whose effects multiply."""
    genes, rng = len(CELL.genes), np.random.default_rng(seed)
    effects = rng.uniform(0.5, 1, genes)
    pairs = rng.permutation(np.stack(np.triu_indices(genes, 1), axis=1))[: 2 * strains]
    y = effects[pairs].prod(1)
    train, validation = pairs_of(pairs[:strains], genes), pairs_of(pairs[strains:], genes)
    return replace(problem_of(train, y[:strains], validation, y[strains:]), reactions=Reactions(CELL))


def again(models: dict[str, NullModel], folder: Path) -> dict[str, NullModel]:
    """Return the models after they were in a file, which is the same when it is written again."""
    path, other = folder / "baselines.npz", folder / "again.npz"
    save_models(path, {"growth": models}, {"split": "of this run"})
    found, about = load_models(path, CELL)
    assert about == {"split": "of this run"}
    save_models(other, found, about)
    with np.load(path) as first, np.load(other) as second:
        assert first.files == second.files
        for name in first.files:
            np.testing.assert_array_equal(first[name], second[name])
    return found["growth"]


def check(problem: Problem, expected: set[str], folder: Path) -> None:
    models = fit_null_models(problem)
    assert expected <= models.keys()
    for name, model in again(models, folder).items():
        assert repr(model) == repr(models[name])
        strains = problem.validation
        np.testing.assert_array_equal(model.predict(strains), models[name].predict(strains), err_msg=name)


def test_what_is_read_predicts_the_same(tmp_path: Path) -> None:
    problem, genes = growth(300), len(CELL.genes)
    of_deletions = {name for name, family in ALL_NULL_MODELS.items() if family.about in (ANY, DELETIONS)}
    check(problem, of_deletions - {"smallest subset"}, tmp_path)
    singles = strains_of([[gene] for gene in range(genes)], genes)
    check(replace(problem, train=singles, y_train=np.linspace(0.5, 1, genes)), {"smallest subset"}, tmp_path)


def test_baselines_of_strengths_and_media_are_kept(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    genotypes = [[number % 12, *([12] if number % 3 == 0 else [])] for number in range(240)]
    strains = strains_of(genotypes, 13)
    media = condition_columns({"medium": np.tile(["a", "b"], 120), "dose": draw.random(240)})
    strengths = draw.uniform(0.05, 0.95, len(strains.targets)).astype(np.float32)
    strains = strains.with_(strengths=strengths, columns=media)
    y = draw.random(240)
    train, validation = np.arange(120), np.arange(120, 240)
    problem = Problem(strains.take(train), strains.take(validation), y[train], y[validation], lambda: unlike(13), 2)
    check(problem, {name for name, family in ALL_NULL_MODELS.items() if family.about == MORE}, tmp_path)


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "baselines.npz"
    for content in (b"", b"PK", b"nothing of the kind" * 10):
        path.write_bytes(content)
        with pytest.raises(UnreadableError):
            load_models(path, CELL)
    wrong = (["Strains", {}], ["TrainingMean", {}], ["TrainingMean", {"mean": "1"}], ["MeanOfAll", {"mean": 1.0}])
    for model in wrong:
        np.savez(path, np.array(json.dumps({"about": {}, "models": {"growth": {"some": model}}})))
        with pytest.raises(UnreadableError, match="no fitted baselines"):
            load_models(path, CELL)
    np.savez(path, np.array([{"an": "object"}], dtype=object))
    with pytest.raises(UnreadableError):
        load_models(path, CELL)
