"""Null models as bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dglcell.api import load_cell
from dglcell.baselines.fit import (
    NULL_MODELS,
    STRENGTH_MODELS,
    Problem,
    best_of,
    fit_null_models,
)
from dglcell.baselines.packed import PackedNulls
from dglcell.baselines.reactions import Reactions
from dglcell.data.columns import condition_columns
from dglcell.data.strains import Strains
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


def arrays(strains: Strains) -> tuple[np.ndarray, np.ndarray]:
    return strains.targets.astype(np.int64), strains.offsets


@pytest.mark.parametrize("name", NULL_MODELS)
def test_what_is_unpacked_predicts_the_same(name: str) -> None:
    problem = growth(300)
    assert NULL_MODELS[name].why_not(problem) is None or name == "smallest subset"
    model = best_of(NULL_MODELS[name], problem)[1]
    packed = PackedNulls([model, model], problem.train.names)
    again = PackedNulls.unpack(packed.pack(), CELL)
    found = again(*arrays(problem.validation))
    np.testing.assert_array_equal(found, packed(*arrays(problem.validation)))
    np.testing.assert_array_equal(found[:, 1], model.predict(problem.validation))
    assert packed.pack() == again.pack()


def test_null_models_of_strengths_are_packed() -> None:
    draw = np.random.default_rng(0)
    strengths = draw.uniform(0.05, 0.95, 240).astype(np.float32)
    strains = replace(strains_of([[number % 12] for number in range(240)], 12), strengths=strengths)
    y = 1 - np.exp(-8 * strengths.astype(np.float64))  # far from additive in what is lost
    problem = Problem(
        strains.take(np.arange(120)), strains.take(np.arange(120, 240)), y[:120], y[120:], lambda: unlike(12), 1
    )
    models = {name: model for name, model in fit_null_models(problem).items() if name in STRENGTH_MODELS}
    assert models
    packed = PackedNulls([*models.values()], strains.names)
    found = PackedNulls.unpack(packed.pack(), CELL)(*arrays(problem.validation), problem.validation.strengths)
    expected = [model.predict(problem.validation) for model in models.values()]
    np.testing.assert_array_equal(found, np.stack(expected, axis=1))


def in_two_media(genes: int = 12) -> tuple[Strains, np.ndarray]:
    """Return two guides of each gene in two media, and growth, which does not depend on the medium."""
    conditions = {"medium": np.repeat(["acetate", "glucose"], 2 * genes), "guide": np.tile(np.repeat([0, 1], genes), 2)}
    own = np.random.default_rng(0).normal(size=2 * genes)
    targets = np.tile(np.arange(genes), 4)
    columns = condition_columns(conditions)
    return Strains(CELL.genes.names, targets, np.arange(len(targets) + 1), columns), np.tile(own, 2)


def test_null_models_of_conditions_are_packed() -> None:
    strains, y = in_two_media()
    train, test = np.arange(24), np.arange(24, 48)
    problem = Problem(strains.take(train), strains.take(test[:0]), y[train], y[:0], lambda: unlike(len(CELL.genes)), 1)
    model = best_of(STRENGTH_MODELS["same strain in other media"], problem)[1]
    assert np.corrcoef(model.predict(strains.take(test)), y[test])[0, 1] > 0.999
    packed, found = PackedNulls([model], strains.names), strains.take(test)
    conditions = {(c.name, c.categories): values for c, values in found.columns.items()}
    restored = PackedNulls.unpack(packed.pack(), CELL)(*arrays(found), None, conditions)
    np.testing.assert_array_equal(restored[:, 0], model.predict(found))


@pytest.mark.parametrize("packed", [b"", b"PK", b"nothing of the kind" * 10])
def test_other_bytes_are_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="its null models are damaged"):
        PackedNulls.unpack(packed, CELL)
