"""Solve ridge regression with a kernel, in the span of a few strains where a table is too large for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dglcell.baselines.beyond_deletions import blocks
from dglcell.baselines.problem import Problem
from dglcell.data.strains import Strains

MOST_STRAINS = 20_000
"""Training strains at most; of more, a sample is taken, which is always the same."""
SMALLEST = 1e-6


def limit(problem: Problem, landmarks: int) -> tuple[Problem, Strains, str]:
    """Return a problem of at most ``MOST_STRAINS`` training strains, landmarks among these, and words for both."""
    some, sample = problem.sampled(MOST_STRAINS)
    of = f" of {sample}" if sample else ""
    return some, some.sampled(landmarks)[0].train, f"{landmarks:,} landmarks{of}"


def solved(
    kernel: NDArray[np.floating], values: NDArray[np.floating], penalties: Sequence[float]
) -> Iterator[tuple[float, NDArray[np.float64]]]:
    """Yield each penalty and the coefficients of all strains, [S], from their kernel, [S, S], and ``values``, [S]."""
    from sklearn.kernel_ridge import KernelRidge  # is slow to import, and needed to fit only

    for penalty in penalties:
        yield penalty, KernelRidge(alpha=penalty, kernel="precomputed").fit(kernel, values).dual_coef_


def spanned(
    crossed: Callable[[slice], NDArray[np.floating]],
    inner: NDArray[np.floating],
    values: NDArray[np.floating],
    penalties: Sequence[float],
) -> Iterator[tuple[float, NDArray[np.float64]]]:
    """Yield each penalty and the coefficients of the landmarks, [L], in whose span the regression is solved.

    With C the kernel of strains and landmarks, and K that of landmarks, (CᵀC + penalty · K) a = Cᵀ values is solved
    (Williams and Seeger 2001, *Using the Nyström method to speed up kernel machines*).

    Args:
        crossed: returns rows of C, [n, L], for a slice of the strains.
        inner: [L, L] the kernel of the landmarks.
        values: [S] what is regressed, around zero.
        penalties: variances of the noise.
    """
    size = len(inner)
    square, right = SMALLEST * np.eye(size), np.zeros(size)
    for rows in blocks(len(values), size):
        part = crossed(rows)
        square += part.T @ part
        right += part.T @ values[rows]
    for penalty in penalties:
        yield penalty, np.linalg.solve(square + penalty * inner, right).astype(np.float64)
