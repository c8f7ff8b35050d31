"""Solve ridge regression with a kernel in the span of a few strains, for tables that are too large for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.kernel_ridge import KernelRidge

MOST_STRAINS = 20_000
"""Training strains at most; of more, a sample is taken, which is always the same."""
MOST_COMPARED = 2**24
"""At most so many pairs of strains are compared at a time."""
SMALLEST = 1e-6


def solved(
    kernel: NDArray[np.floating], values: NDArray[np.floating], penalties: Sequence[float]
) -> Iterator[tuple[float, NDArray[np.float64]]]:
    """Yield each penalty and the coefficients of all strains, [S], from their kernel, [S, S], and ``values``, [S]."""
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


def blocks(size: int, others: int) -> Iterator[slice]:
    """Yield slices of ``size`` strains that are compared with ``others`` together."""
    rows = max(1, MOST_COMPARED // max(others, 1))
    for start in range(0, size, rows):
        yield slice(start, start + rows)
