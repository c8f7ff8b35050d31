"""Compute metrics of predictions, how far one model is ahead of others, and how good a model can be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dglcell.data.columns import PHENOTYPE, REPLICATES, SD, Column
from dglcell.data.strains import Strains
from dglcell.data.table import CLASSIFICATION, REGRESSION
from dglcell.errors import DataError

Values = NDArray[np.floating]

METRICS = ("mse", "rmse", "mae", "pearson", "spearman", "r2", "n")


def regression_metrics(prediction: ArrayLike, target: ArrayLike) -> dict[str, float]:
    """Compare predictions with measurements, in float64.

    Args:
        prediction: [S] predicted values. One that is not finite is not masked: it makes the metrics NaN.
        target: [S] measured values; NaN where missing, those strains are left out.

    Returns:
        ``mse``, ``rmse``, ``mae``, ``pearson``, ``spearman`` (average ranks for ties), ``r2`` (1 − SSE/SST,
        negative for a model worse than the mean of the target) and ``n``, the number of measured strains.
        What is undefined is NaN: everything but ``n`` for no strain, the correlations for fewer than three
        strains or where either side is constant, ``r2`` where the target is constant.

    Raises:
        DataError: the shapes differ or are not one-dimensional.
    """
    p, t = measured_pairs(prediction, target)
    errors = error_metrics(p, t)
    if math.isnan(errors["mse"]):
        return {name: math.nan for name in METRICS[:-1]} | {"n": len(t)}
    import pandas as pd

    # scipy.stats takes a second to import.
    ranks = [np.asarray(pd.Series(values).rank(), dtype=np.float64) for values in (p, t)]
    # Scaling first keeps the sums of squares of very small or very large values in range.
    scale, r = np.ptp(t), pearson(p, t) if len(t) > 2 else math.nan
    r2 = math.nan
    if not is_constant(t):
        r2 = 1.0 - float(np.sum(((p - t) / scale) ** 2) / np.sum(((t - t.mean()) / scale) ** 2))
    spearman = math.nan if math.isnan(r) else pearson(*ranks)
    return {**errors, "pearson": r, "spearman": spearman, "r2": r2, "n": len(t)}


def error_metrics(prediction: ArrayLike, target: ArrayLike) -> dict[str, float]:
    """Return ``mse``, ``rmse`` and ``mae`` as :func:`regression_metrics` does, without ranking the strains."""
    p, t = measured_pairs(prediction, target)
    if len(t) == 0 or not np.isfinite(p).all():
        return dict.fromkeys(METRICS[:3], math.nan)
    mse = float(np.mean((p - t) ** 2))
    return {"mse": mse, "rmse": math.sqrt(mse), "mae": float(np.mean(np.abs(p - t)))}


def measured_pairs(prediction: ArrayLike, target: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return predictions and targets of the strains that have a target, in float64."""
    p = np.asarray(prediction, dtype=np.float64)
    t = np.asarray(target, dtype=np.float64)
    if p.ndim != 1 or p.shape != t.shape:
        what, got = "metrics: predictions and targets differ in shape", f"{p.shape} and {t.shape}"
        raise DataError(what, got=got, expected="two arrays of shape [S]")
    measured = ~np.isnan(t)
    return p[measured], t[measured]


def is_constant(x: NDArray[np.float64]) -> bool:
    """Return whether all values are equal up to rounding; true for fewer than two values."""
    return len(x) < 2 or bool(np.ptp(x) <= 1e-13 * np.abs(x).max())


def pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the Pearson correlation of two arrays; NaN where either is constant, or a value of ``x`` is not finite."""
    if is_constant(x) or is_constant(y) or not np.isfinite(x).all():
        return math.nan
    x, y = (x - x.mean()) / np.ptp(x), (y - y.mean()) / np.ptp(y)
    r = float(x @ y) / math.sqrt(float(x @ x) * float(y @ y))
    return min(1.0, max(-1.0, r))


FEWEST_WITHIN = 10  # measured strains that a group needs for a correlation within it to count
LOWEST = 0.02  # share of a group's strains that are to be found as its lowest


def _by_group(
    prediction: ArrayLike, target: ArrayLike, groups: NDArray[np.integer]
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return predictions and targets of the measured strains of each group."""
    p, t = measured_pairs(prediction, target)
    of_strain = groups[~np.isnan(np.asarray(target, dtype=np.float64))]
    return [(p[of_strain == group], t[of_strain == group]) for group in np.unique(of_strain)]


def pearson_within(prediction: ArrayLike, target: ArrayLike, groups: NDArray[np.integer]) -> float:
    """Return the mean over groups of strains of Pearson's r within each group; NaN with fewer than two groups.

    Differences between the means of groups do not count, such as growth in a rich and in a poor medium. A group counts
    if ``FEWEST_WITHIN`` strains are measured, and neither side is constant; missing targets are NaN.
    """
    found = [pearson(p, t) for p, t in _by_group(prediction, target, groups) if len(t) >= FEWEST_WITHIN]
    found = [r for r in found if math.isfinite(r)]
    return float(np.mean(found)) if len(found) > 1 else math.nan


def lowest_auroc(prediction: ArrayLike, target: ArrayLike, groups: NDArray[np.integer]) -> float:
    """Return the mean over groups of the AUROC with which low predictions find the lowest ``LOWEST`` of each group.

    A group counts if two strains or more are to be found. NaN without one, or where its predictions are not finite.
    """
    found = []
    for p, t in _by_group(prediction, target, groups):
        if (number := round(LOWEST * len(t))) >= 2:
            found.append(classification_metrics(-p, t <= np.partition(t, number - 1)[number - 1])["auroc"])
    return float(np.mean(found)) if found else math.nan


ENSEMBLE_OF = "network + "  # names of ensembles of a network and a baseline begin with this text
WITHOUT_MESSAGES = "without messages"  # name of the ablation of a network, which stands among its baselines


@dataclass(frozen=True)
class ResultRow:
    """Hold the metrics of one model on one part of a split, for one phenotype."""

    model: str  #: name shown, e.g. ``additive ridge``.
    part: str  #: ``train``, ``validation`` or ``test``
    phenotype: str  #: label column
    #: from :func:`regression_metrics`, in the original units of the phenotype; for a phenotype of 0 and 1 also those of
    #: :func:`~dglcell.metrics.classification_metrics`
    metrics: Mapping[str, float]
    is_baseline: bool = False  #: whether it is a baseline
    #: kind of the phenotype's labels, ``regression`` or ``classification``; see ``Strains.kinds``
    kind: str = REGRESSION

    @property
    def is_ensemble(self) -> bool:
        """Return whether it is an ensemble of the network and a baseline."""
        return self.model.startswith(ENSEMBLE_OF)

    @property
    def is_network(self) -> bool:
        """Return whether it is of what the network learned, alone."""
        return not (self.is_baseline or self.is_ensemble)

    def with_metrics(self, more: Mapping[str, float]) -> ResultRow:
        """Return the row with more metrics."""
        return replace(self, metrics={**self.metrics, **more})


def classification_metrics(prediction: ArrayLike, target: ArrayLike) -> dict[str, float]:
    """Compare predictions with labels 0 and 1, in float64.

    Args:
        prediction: [S] scores, higher for 1; probabilities for ``brier``. One that is not finite makes the metrics NaN.
        target: [S] 0 or 1; NaN where missing, those strains are left out.

    Returns:
        ``average_precision``, ``auroc``, ``brier`` (mean squared error), ``prevalence`` (share of 1, what a random
        ranking has as average precision) and ``n``; strains of equal score are found together. What is undefined is
        NaN: everything but ``n`` for no strain, ``average_precision`` without a label 1, ``auroc`` without both labels.

    Raises:
        DataError: the shapes differ or are not one-dimensional, or a label is neither 0 nor 1.
    """
    p, t = measured_pairs(prediction, target)
    positive = t == 1
    if not (positive | (t == 0)).all():
        what, got = "classification metrics: a label is neither 0 nor 1", float(t[~positive & (t != 0)][0])
        raise DataError(what, got=got, expected="0, 1, or NaN where nothing was measured")
    if len(t) == 0 or not np.isfinite(p).all():
        return dict.fromkeys(("average_precision", "auroc", "brier", "prevalence"), math.nan) | {"n": len(t)}
    from sklearn.metrics import average_precision_score, roc_auc_score  # here, because it takes a second to import

    return {
        "average_precision": float(average_precision_score(positive, p)) if positive.any() else math.nan,
        "auroc": float(roc_auc_score(positive, p)) if 0 < positive.sum() < len(t) else math.nan,
        "brier": float(np.mean((p - t) ** 2)),
        "prevalence": float(positive.mean()),
        "n": len(t),
    }


def f1(prediction: ArrayLike, target: ArrayLike, threshold: float) -> float:
    """Return the harmonic mean of precision and recall where predictions from ``threshold`` on count as 1.

    NaN without a label 1 or a threshold, or if a prediction is not finite.
    """
    p, t = measured_pairs(prediction, target)
    if math.isnan(threshold) or not (t == 1).any() or not np.isfinite(p).all():
        return math.nan
    called, positive = p >= threshold, t == 1
    return float(2 * (called & positive).sum() / (called.sum() + positive.sum()))


def best_threshold(prediction: ArrayLike, target: ArrayLike) -> float:
    """Return the prediction from which on F1 is highest, the highest of several; NaN without a label 1."""
    p, t = measured_pairs(prediction, target)
    if not (t == 1).any() or not np.isfinite(p).all():
        return math.nan
    scores, found = np.unique(p, return_inverse=True)
    called, right = (np.cumsum(np.bincount(found, of)[::-1])[::-1] for of in (np.ones(len(t)), t == 1))
    of_each = right / (called + right[0])
    return float(scores[len(scores) - 1 - np.argmax(of_each[::-1])])


def rows_of(
    model: str,
    phenotype: str,
    kind: str | None,
    predicted: Mapping[str, NDArray[np.floating]],
    measured: Mapping[str, NDArray[np.floating]],
    *,
    is_baseline: bool = False,
    groups: Mapping[str, NDArray[np.integer]] | None = None,
) -> list[ResultRow]:
    """Compute the metrics of a model for one phenotype, a row per part; predictions and the rest are [S] of each part.

    Args:
        kind: kind of its labels; None where the labels of the part say it. Classes are told apart at the threshold that
            is best on the validation part, and by none without this part.
        groups: group of each strain, such as its medium. Rows of numbers have the metrics ``pearson_within`` and
            ``lowest_auroc`` (functions of the same names) where they are defined.
    """
    rows, threshold = [], math.nan
    if kind == CLASSIFICATION and "validation" in predicted:
        threshold = best_threshold(predicted["validation"], measured["validation"])
    for part, values in predicted.items():
        labels = measured[part]
        is_class = kind == CLASSIFICATION or (kind is None and np.isin(labels[~np.isnan(labels)], (0, 1)).all())
        metrics = regression_metrics(values, labels) | (classification_metrics(values, labels) if is_class else {})
        if kind == CLASSIFICATION:
            metrics |= {"f1": f1(values, labels, threshold), "threshold": threshold}
        elif groups:
            within = {of.__name__: of(values, labels, groups[part]) for of in (pearson_within, lowest_auroc)}
            metrics |= {name: number for name, number in within.items() if math.isfinite(number)}
        rows.append(ResultRow(model, part, phenotype, metrics, is_baseline, CLASSIFICATION if is_class else REGRESSION))
    return rows


COLUMNS = {
    REGRESSION: {"n": "n", "pearson": "Pearson", "spearman": "Spearman", "r2": "R²", "mse": "MSE", "mae": "MAE"},
    CLASSIFICATION: dict(n="n", prevalence="positive", average_precision="AP", auroc="AUROC", f1="F1", brier="Brier"),
}
"""This maps the kind of labels and a metric to the title of its column."""

HEADLINE = {REGRESSION: "pearson", CLASSIFICATION: "average_precision"}
"""This maps the kind of labels to the metric that comes first where models are compared."""

UNRANKED = frozenset({"n", "prevalence"})
LOWER_IS_BETTER = frozenset({"mse", "rmse", "mae", "brier"})


def best_row(rows: Iterable[ResultRow], metric: str) -> ResultRow | None:
    """Return the first of the rows with the best value of a metric; None where none is defined."""
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    known = (row for row in rows if math.isfinite(row.metrics.get(metric, math.nan)))
    return max(known, key=lambda row: sign * row.metrics[metric], default=None)


def format_metric(metric: str, value: float) -> str:
    """Format one value as the tables show it; errors have three digits, correlations three decimals."""
    if not math.isfinite(value):
        return "-"
    if metric == "n":
        return f"{int(value):,}"
    if metric in LOWER_IS_BETTER:
        return f"{value:.0f}" if 100 <= value < 1e6 else f"{value:#.3g}"
    return f"{round(value, 3) + 0.0:.3f}"  # adding zero turns a rounded −0.000 into 0.000


# How far a model is ahead of others, by drawing strains and genes again.

LARGEST = 20_000_000
"""Larger test parts are drawn again fewer times, so that strains × draws is no more than this; at least 100 times."""

CHUNK = 4_000_000  # most weights of strains that are in memory at once
FEWEST_GENES = 10  # with fewer genes, drawing them again says nothing that can be relied on


def ahead(
    kind: str, model_S: Values, others: Mapping[str, Values], measured_S: Values, strains: Strains
) -> dict[str, dict[str, float]]:
    """Return by how much a model is ahead of each other predictor, with intervals at 95 %.

    The score is Pearson's r, or the average precision of classes. Differences are taken on the same draw of strains.
    One interval is of a bootstrap over strains, the other of one over genes. Each gene is drawn with replacement, and a
    strain counts as often as the product over its genes says (Owen 2007, *The pigeonhole bootstrap*, Ann Appl Stat
    1:386). The second is wider where errors of strains with the same gene are alike. Strains are in numpy, and those
    without a label (NaN) do not count.

    Returns:
        Name of the predictor → ``ahead``, ``ahead_low``, ``ahead_high``, ``ahead_genes_low`` and
        ``ahead_genes_high``. Predictors whose score is not defined are left out, and so are intervals over fewer than
        ``FEWEST_GENES`` genes.
    """
    known = np.flatnonzero(~np.isnan(measured_S))
    if len(known) < 2 or not others:
        return {}
    strains, measured = strains.take(known), measured_S[known].astype(float)
    predicted_PS = np.stack([values[known].astype(float) for values in (model_S, *others.values())])
    score = partial(average_precisions if kind == CLASSIFICATION else pearsons, predicted_PS, measured)
    draws: dict[str, Iterable[Values]] = {"ahead": (of.astype(float) for of in times_drawn(len(known), len(known)))}
    if len(np.unique(strains.targets)) >= FEWEST_GENES:
        draws["ahead_genes"] = gene_weights(strains)
    with np.errstate(invalid="ignore", divide="ignore"):
        own, *theirs = score(np.ones((1, len(known))))[0]
        leads = {name: own - one for name, one in zip(others, theirs, strict=True)}
        found = {name: {"ahead": float(lead)} for name, lead in leads.items() if np.isfinite(lead)}
        for over, weights in draws.items():
            drawn_RP = np.concatenate([score(chunk) for chunk in weights])
            for p, name in enumerate(others, 1):
                if name in found:
                    low, high = np.nanquantile(drawn_RP[:, 0] - drawn_RP[:, p], (0.025, 0.975))
                    found[name] |= {f"{over}_low": float(low), f"{over}_high": float(high)}
    return found


def gene_weights(strains: Strains) -> Iterator[Values]:
    """Yield how often each strain counts, [R, S] at a time, when genes are drawn with replacement."""
    genes, targets = np.unique(strains.targets, return_inverse=True)
    changed = strains.num_deletions > 0
    for times in times_drawn(len(genes), len(strains)):
        weights = np.ones((len(times), len(strains)))
        weights[:, changed] = np.multiply.reduceat(times[:, targets], strains.offsets[:-1][changed], axis=1)
        yield weights


def times_drawn(number: int, strains: int) -> Iterator[NDArray[np.int64]]:
    """Yield how often each of some things is drawn with replacement, [R, number] at a time; 1,000 times or less."""
    rng, left = np.random.default_rng(0), max(min(1000, LARGEST // strains), 100)
    while left > 0:
        now = min(left, max(CHUNK // strains, 1))
        yield np.stack([np.bincount(rng.integers(number, size=number), minlength=number) for _ in range(now)])
        left -= now


def pearsons(predicted_PS: Values, measured_S: Values, weights_RS: Values) -> Values:
    """Return Pearson's r of each predictor in each draw, [R, P]; NaN where a value does not vary."""
    y_S, p_PS = _scaled(measured_S), _scaled(predicted_PS)
    total = weights_RS.sum(1, keepdims=True)
    mean_y, mean_p = weights_RS @ y_S[:, None] / total, weights_RS @ p_PS.T / total
    variance_y = weights_RS @ (y_S**2)[:, None] / total - mean_y**2
    variance_p = weights_RS @ (p_PS**2).T / total - mean_p**2
    covariance = weights_RS @ (p_PS * y_S).T / total - mean_p * mean_y
    varies = np.minimum(variance_y, variance_p) > 1e-12  # less is rounding
    found: Values = np.where(varies, covariance / np.sqrt(variance_y * variance_p), math.nan)
    return found


def _scaled(values_S: Values) -> Values:
    """Return values with a mean of 0 and a range of 1, so that sums of squares are exact enough; NaN if constant."""
    found: Values = values_S - values_S.mean(-1, keepdims=True)
    return found / np.ptp(found, axis=-1, keepdims=True)


def average_precisions(predicted_PS: Values, measured_S: Values, weights_RS: Values) -> Values:
    """Return the average precision of each predictor in each draw, [R, P]; NaN as in `classification_metrics`."""
    found = np.full((len(weights_RS), len(predicted_PS)), math.nan)
    for p, predicted in enumerate(predicted_PS):
        order = np.argsort(-predicted, kind="stable")
        hits = np.flatnonzero(measured_S[order])
        if not len(hits) or not np.isfinite(predicted).all():
            continue
        # Strains that rank alike count at the last of them.
        ends = np.append(np.flatnonzero(np.diff(predicted[order])), len(order) - 1)
        last, first = np.unique(ends[np.searchsorted(ends, hits)], return_index=True)
        weights = weights_RS[:, order[: last[-1] + 1]]
        right = np.add.reduceat(weights[:, hits], first, axis=1)
        total = np.cumsum(np.add.reduceat(weights, np.append(0, last[:-1] + 1), axis=1), axis=1)
        precision = np.cumsum(right, axis=1) / np.maximum(total, np.finfo(float).tiny)
        found[:, p] = (precision * right).sum(1) / right.sum(1)
    return found


FEWEST = 30
"""With fewer strains that were measured several times, the correlation of replicates is not known well enough."""


def replicate_correlation(mean_S: Values, sd_S: Values, replicates_S: Values) -> float:
    """Return the correlation of two measurements of a strain, over the strains that were measured several times.

    It is the intraclass correlation of a one-way analysis of variance (Shrout and Fleiss 1979, *Intraclass
    correlations: uses in assessing rater reliability*, Psychol Bull 86:420), with strains of different numbers of
    measurements. It is at least 0; NaN if fewer than ``FEWEST`` strains were measured several times.
    """
    several = (replicates_S > 1) & np.isfinite(sd_S) & np.isfinite(mean_S)
    strains = int(several.sum())
    if strains < FEWEST:
        return math.nan
    n, mean, sd = (values[several].astype(float) for values in (replicates_S, mean_S, sd_S))
    within = float(((n - 1) * sd**2).sum() / (n - 1).sum())
    between = float((n * (mean - np.average(mean, weights=n)) ** 2).sum() / (strains - 1))
    size = float(n.sum() - (n**2).sum() / n.sum()) / (strains - 1)
    of_strains = max((between - within) / size, 0.0)
    return of_strains / (of_strains + within) if of_strains + within > 0 else math.nan


def ceilings(strains: Strains, tested: NDArray[np.integer]) -> dict[str, float]:
    """Return the ceiling of each phenotype that was measured several times: how well its labels correlate with the
    values that they would have without errors of measurement.

    It is √r, where r is the correlation of two independent sets of such labels (Spearman 1904, *The proof and
    measurement of association between two things*, Am J Psychol 15:72). Strains that were measured once are taken to
    be as repeatable as the others, and the mean of n measurements has 1/n of the errors' variance. All strains say how
    well measurements agree, and the ceiling is that on those that are ``tested``; NaN where nothing is known of errors.
    """
    found = {}
    for (kind, name, *_), times in strains.columns.items():
        spread = strains.columns.get(Column(SD, name))
        if kind == REPLICATES and spread is not None and len(tested):
            r = replicate_correlation(strains.columns[Column(PHENOTYPE, name)], spread, times)
            measured = times[tested][times[tested] > 0].astype(float)
            if math.isnan(r) or not len(measured):
                found[name] = math.nan
            else:
                found[name] = 1 / math.sqrt(1 + (1 - r) / r * float(np.mean(1 / measured))) if r > 0 else 0.0
    return found
