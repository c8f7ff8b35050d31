"""The numbers behind the panels, against independent computations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dglcell.errors import DataError
from dglcell.plots import Predictions, Subject
from dglcell.plots.data import CUT, EDGES, is_binary, is_interaction
from dglcell.plots.distributions import class_curves, distributions, distributions_panel, precision_recall
from dglcell.plots.learning import term_keys
from dglcell.plots.regression import agreement, compact, residuals, score_bins, score_bins_panel
from dglcell.plots.relations import relation_means
from dglcell.plots.style import HEXAGONS, draw_strip, hexagons, new_figure, sample
from tests.examples import examples
from tests.plots.invented import CONSTANT, WEIGHTS, history, predictions, subject

FINITE = st.floats(-1e3, 1e3, allow_subnormal=False)


def of(measured: np.ndarray, predicted: np.ndarray) -> Predictions:
    """Return predictions of strains with two deletions."""
    return Predictions(measured, predicted, np.full(len(measured), 2))


@examples(13)
@given(st.integers(0, 10_000), st.integers(1, 300))
def test_every_point_is_in_the_hexagon_with_the_nearest_centre(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(-1.2, 1.2, n), rng.uniform(-6, 6, n)
    found = hexagons(x, y, (-1.0, 1.0), (-5.0, 5.0))
    inside = (abs(x) <= 1) & (abs(y) <= 5)
    assert found.counts.sum() == inside.sum()
    width, height = 2 / HEXAGONS[0], 10 / HEXAGONS[1]
    i, j = np.arange(-1, HEXAGONS[0] + 2), np.arange(-1, HEXAGONS[1] + 2)
    whole = np.stack(np.meshgrid(i, j), -1).reshape(-1, 2).astype(float)
    centres = np.concatenate([whole, whole + 0.5])
    points = np.stack([(x[inside] + 1) / width, (y[inside] + 5) / height], -1)
    # In a lattice of regular hexagons a row is √3 times as high as a column is wide.
    distance = ((points[:, None] - centres) * [1, math.sqrt(3)]) ** 2
    nearest = centres[distance.sum(-1).argmin(1)]
    expected = {tuple(c): n for c, n in zip(*np.unique(nearest, axis=0, return_counts=True), strict=True)}
    got = {
        (round((a + 1) / width, 6), round((b + 5) / height, 6)): n
        for a, b, n in zip(found.x, found.y, found.counts, strict=True)
    }
    assert got == {(round(a, 6), round(b, 6)): n for (a, b), n in expected.items()}


def test_a_sample_is_ascending_and_the_same_for_the_same_seed() -> None:
    assert sample(5, 10).tolist() == [0, 1, 2, 3, 4]
    chosen = sample(1000, 50, seed=3)
    assert len(set(chosen.tolist())) == 50
    assert (np.diff(chosen) > 0).all()
    assert (chosen == sample(1000, 50, seed=3)).all()
    assert (chosen != sample(1000, 50, seed=4)).any()


def test_at_most_so_many_points_are_drawn_and_tabulated() -> None:
    panel = agreement(subject(700, points=40))
    assert len(panel.table.rows) == 40
    assert "40 of them chosen at random" in panel.caption
    many = agreement(subject(7000, points=40))
    assert many.table.columns == ("predicted", "measured", "strains")
    assert "chosen" not in many.caption


@examples(25)
@given(arrays(np.float64, st.integers(1, 60), elements=FINITE), st.integers(0, 1000))
def test_wasserstein_is_the_mean_distance_of_sorted_values(measured: np.ndarray, seed: int) -> None:
    predicted = np.random.default_rng(seed).permutation(measured) * 0.5 + 1
    found = distributions(of(measured, predicted))
    expected = np.abs(np.sort(measured) - np.sort(predicted)).mean()
    assert found.wasserstein == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert found.measured.sum() == found.predicted.sum() == len(measured)
    assert 0 <= found.jensen_shannon <= 1 + 1e-12


def test_jensen_shannon_of_equal_and_of_disjoint_values() -> None:
    values = np.linspace(0, 1, 50)
    assert distributions(of(values, values[::-1])).jensen_shannon == pytest.approx(0)
    assert distributions(of(values, values + 5)).jensen_shannon == pytest.approx(1)
    half = distributions(of(np.array([0.0, 0.0]), np.array([0.0, 1.0])))
    # P = (1, 0), Q = (½, ½), M = (¾, ¼): the mean of KL(P‖M) and KL(Q‖M), in bits.
    kl = [math.log2(4 / 3), 0.5 * math.log2(2 / 3) + 0.5 * math.log2(2)]
    assert half.jensen_shannon == pytest.approx(sum(kl) / 2)


def test_many_strains_beyond_the_axes_still_count_for_the_distances() -> None:
    measured = np.zeros(4000)
    measured[0] = 1e6
    found = distributions(of(measured, np.zeros(4000)))
    assert found.measured.sum() == 3999
    assert found.wasserstein == pytest.approx(250)


def test_interaction_scores_are_divided_at_the_usual_edges() -> None:
    predicted = np.array([-0.5, -0.4, -0.39, -0.08, -0.079, 0.0, 0.001, 0.24, 0.25, 0.3])
    found = score_bins(Subject(of(predicted * 2, predicted), "trigenic_interaction"))
    assert found.fixed
    assert tuple(found.edges) == EDGES
    expected = [sum(low < p <= high for p in predicted) for low, high in itertools.pairwise(EDGES)]
    assert found.n == expected == [2, 1, 0, 0, 1, 2, 1, 0, 1, 2]
    assert found.measured[0].tolist() == [-1.0, -0.8]
    panel = score_bins_panel(Subject(of(predicted * 2, predicted), "trigenic_interaction"))
    assert panel is not None
    assert "usual edges of interaction scores" in panel.caption


@examples(15)
@given(arrays(np.float64, st.integers(1, 200), elements=FINITE))
def test_other_scores_are_divided_into_equal_bins(predicted: np.ndarray) -> None:
    found = score_bins(Subject(of(predicted * 3, predicted), "s_score"))
    assert not found.fixed
    assert sum(found.n) == len(predicted)
    assert 1 <= len(found.n) <= 10
    assert min(found.n) >= 1
    if len(set(predicted)) == len(predicted) >= 10:
        assert max(found.n) - min(found.n) <= 2
    for low, high, measured in zip(found.edges[:-1], found.edges[1:], found.measured, strict=True):
        assert sorted(measured / 3) == pytest.approx(sorted(p for p in predicted if low < p <= high))


def test_constant_predictions_make_one_bin_and_classes_make_none() -> None:
    assert score_bins(Subject(CONSTANT, "fitness")).n == [20]
    assert score_bins_panel(Subject(predictions(50, binary=True), "y")) is None


@pytest.mark.parametrize(
    ("n", "text"), [(0, "0"), (999, "999"), (1000, "1.0k"), (9949, "9.9k"), (9950, "10k"), (332_313, "332k")]
)
def test_counts_are_written_short(n: int, text: str) -> None:
    assert compact(n) == text


@examples(30)
@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 6))
def test_average_precision_against_its_definition(seed: int, n: int, distinct: int) -> None:
    rng = np.random.default_rng(seed)
    positive, score = rng.random(n) < 0.4, rng.integers(0, distinct, n).astype(float)
    positive[rng.integers(n)] = True
    found = precision_recall("y", positive, score)
    expected, before = 0.0, 0.0
    for i, threshold in enumerate(sorted(set(score), reverse=True)):
        taken = score >= threshold
        precision, recall = positive[taken].mean(), positive[taken].sum() / positive.sum()
        assert (found.precision[i], found.recall[i]) == (pytest.approx(precision), pytest.approx(recall))
        expected, before = expected + (recall - before) * precision, recall
    assert found.average == pytest.approx(expected)
    assert found.recall[-1] == 1
    assert found.precision[-1] == pytest.approx(positive.mean())


def test_classes_of_interactions_and_of_yes_and_no() -> None:
    measured = np.array([-0.3, -0.081, -0.08, 0.0, 0.08, 0.09])
    negative, positive = class_curves(Subject(of(measured, measured), "digenic_interaction"))
    assert (negative.positives, positive.positives, negative.n) == (2, 1, 6)
    assert negative.average == positive.average == 1
    (only,) = class_curves(Subject(of(np.abs(measured), measured), "tau"))
    assert only.name == f"positive (> {CUT})"
    (one,) = class_curves(Subject(of(np.array([0.0, 1.0, 1.0]), np.array([0.9, 0.2, 0.1])), "negative_interaction"))
    assert one.name == "negative_interaction = 1"
    assert one.average == pytest.approx(0.5 * 1 / 2 + 0.5 * 2 / 3)
    assert class_curves(subject(50, "fitness")) == []
    with pytest.raises(DataError, match="no strain is y"):
        precision_recall("y", np.zeros(3, bool), np.zeros(3))


def test_which_phenotypes_are_interactions() -> None:
    names = ("epsilon", "Tau", "digenic_interaction", "trigenic_interaction", "gene_interaction", "x_interaction_score")
    assert all(map(is_interaction, names))
    assert not any(map(is_interaction, ("fitness", "s_score", "interaction_partners")))
    assert is_binary(np.array([0.0, 1.0]))
    assert not is_binary(np.array([0.0, 0.5]))
    assert not is_binary(np.zeros(0))


def test_residuals_are_predicted_minus_measured() -> None:
    p = of(np.linspace(0, 1, 40), np.linspace(0, 1, 40) + 0.25)
    along, histogram = residuals(Subject(p, "fitness"))
    assert [row[1] for row in along.table.rows] == pytest.approx([0.25] * len(along.table.rows))
    assert sum(int(str(row[2])) for row in histogram.table.rows) == 40
    assert "mean 0.250, SD 0.000" in histogram.caption


def test_relation_weights_of_a_layer_sum_to_one() -> None:
    means = relation_means(WEIGHTS)
    assert means["1"] == pytest.approx({f"network_{i}": (i + 1) / 10 for i in range(4)})
    assert means["2"] == pytest.approx({"network_0": 0.7, "network_1": 0.3})


def test_every_term_of_the_loss_is_found() -> None:
    more = {
        "train/loss/mse": 1.0,
        "train/loss/wasserstein": 2.0,
        "validation/loss/mse": 1.0,
        "train/loss/gone": math.nan,
    }
    assert term_keys(history(["fitness"], **more)) == {
        "train/loss/mse": "mse",
        "train/loss/wasserstein": "wasserstein",
        "validation/loss/mse": "validation mse",
    }


def test_a_record_without_values_is_nan() -> None:
    found = history(["y"], epochs=2)
    assert found.epochs.tolist() == [1, 2]
    assert np.isnan(found.curve("nothing")).all()
    assert found.curve("train/loss").tolist() == [2.0, 1.0]
    assert (found.minutes, found.duration) == (1.0, "60.0 s")
    assert history(["y"], epochs=5).duration == "2.5 min"


def test_few_strains_are_shown_one_by_one() -> None:
    few, more = (Subject(of(np.arange(float(n)), np.ones(n)), "fitness") for n in (14, 30))
    panel = distributions_panel(few)
    assert panel.table.columns == ("measured", "predicted")
    assert len(panel.table.rows) == 14
    assert "as a point" in panel.caption
    assert residuals(few)[1].table.rows == [[1.0 - i] for i in range(14)]
    assert "as points" in residuals(few)[1].caption
    assert distributions_panel(more).table.columns[0] == "from"
    assert "counted" in residuals(more)[1].caption


def test_points_of_one_value_lie_above_each_other() -> None:
    axes = new_figure(3, 2, 100).subplots()
    draw_strip(axes, {"a": (np.array([1.0, 0.0, 1.0, 1.0]), "blue"), "b": (np.array([2.0]), "grey")})
    first, second = (np.asarray(points.get_offsets()) for points in axes.collections)
    np.testing.assert_allclose(first, [[0, 2], [1, 2], [1, 2.25], [1, 2.5]])
    np.testing.assert_allclose(second, [[2, 1]])
