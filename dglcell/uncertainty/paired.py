"""Say how far a model is ahead of other predictors on the same strains, by drawing strains and genes again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dglcell.data.columns import PHENOTYPE, REPLICATES, SD, Column
from dglcell.data.strains import Strains
from dglcell.data.table import CLASSIFICATION

LARGEST = 20_000_000
"""Larger test parts are drawn again fewer times, so that strains × draws is no more than this; at least 100 times."""

CHUNK = 4_000_000
"""Most weights of strains that are in memory at once."""

FEWEST_GENES = 10
"""With fewer genes, drawing them again says nothing that can be relied on."""

ROUNDING = 1e-12
"""Smaller variances of values with a range of 1 are rounding."""

SEED = 0

Values = NDArray[np.floating]


def ahead(
    kind: str, model_S: Values, others: Mapping[str, Values], measured_S: Values, strains: Strains
) -> dict[str, dict[str, float]]:
    """Return by how much a model is ahead of each other predictor, with intervals at 95 %.

    The score is Pearson's r, or the average precision of classes. Differences are taken on the same draw of strains.
    One interval is of a bootstrap over strains, the other of one over genes. Each gene is drawn with replacement, and a
    strain counts as often as the product over its genes says (Owen 2007, *The pigeonhole bootstrap*, Ann Appl Stat
    1:386). The second is wider where errors of strains with the same gene are alike.

    Args:
        others: name → predictions of another predictor.
        measured_S: labels, NaN where missing; those strains do not count.
        strains: the strains, in numpy.

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
    draws = {"ahead": strain_weights(len(known))}
    if len(np.unique(strains.targets)) >= FEWEST_GENES:
        draws["ahead_genes"] = gene_weights(strains)
    with np.errstate(invalid="ignore", divide="ignore"):
        found_P = _differences(score(np.ones((1, len(known)))))[0]
        found = {name: {"ahead": float(found_P[p])} for p, name in enumerate(others) if np.isfinite(found_P[p])}
        for over, weights in draws.items():
            drawn_RP = _differences(np.concatenate([score(chunk) for chunk in weights]))
            for p, name in enumerate(others):
                if name in found:
                    low, high = np.nanquantile(drawn_RP[:, p], (0.025, 0.975))
                    found[name] |= {f"{over}_low": float(low), f"{over}_high": float(high)}
    return found


def _differences(scores_RP: Values) -> Values:
    return scores_RP[:, :1] - scores_RP[:, 1:]


def strain_weights(number: int) -> Iterator[Values]:
    """Yield how often each strain is drawn, [R, S] at a time, when as many are drawn with replacement."""
    for times in _times_drawn(number, number):
        yield times.astype(float)


def gene_weights(strains: Strains) -> Iterator[Values]:
    """Yield how often each strain counts, [R, S] at a time, when genes are drawn with replacement."""
    genes, targets = np.unique(strains.targets, return_inverse=True)
    changed = strains.num_deletions > 0
    for times in _times_drawn(len(genes), len(strains)):
        weights = np.ones((len(times), len(strains)))
        weights[:, changed] = np.multiply.reduceat(times[:, targets], strains.offsets[:-1][changed], axis=1)
        yield weights


def _times_drawn(number: int, strains: int) -> Iterator[NDArray[np.int64]]:
    """Yield how often each of ``number`` things is drawn, [R, number] at a time, when as many are with replacement.

    There are 1,000 draws, and fewer of many strains.
    """
    rng, left = np.random.default_rng(SEED), max(min(1000, LARGEST // strains), 100)
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
    varies = np.minimum(variance_y, variance_p) > ROUNDING
    found: Values = np.where(varies, covariance / np.sqrt(variance_y * variance_p), math.nan)
    return found


def _scaled(values_S: Values) -> Values:
    """Return values with a mean of 0 and a range of 1, so that sums of squares are exact enough; NaN if constant."""
    found: Values = values_S - values_S.mean(-1, keepdims=True)
    return found / np.ptp(found, axis=-1, keepdims=True)


def average_precisions(predicted_PS: Values, measured_S: Values, weights_RS: Values) -> Values:
    """Return the average precision of each predictor in each draw, [R, P]; NaN without a strain of class 1."""
    found = np.full((len(weights_RS), len(predicted_PS)), math.nan)
    for p, predicted in enumerate(predicted_PS):
        order = np.argsort(-predicted, kind="stable")
        hits = np.flatnonzero(measured_S[order])
        if not len(hits):
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
    measurements.

    Args:
        mean_S: mean of the measurements of each strain.
        sd_S: their standard deviation, NaN where there is none.
        replicates_S: their number.

    Returns:
        The correlation, at least 0; NaN if fewer than ``FEWEST`` strains were measured several times.
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
    be as repeatable as the others, and the mean of n measurements has 1/n of the errors' variance.

    Args:
        strains: all strains, in numpy, which say how well measurements agree.
        tested: [n] numbers of the strains of the test part.

    Returns:
        Phenotype → the correlation on these strains; NaN where nothing is known of errors.
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
