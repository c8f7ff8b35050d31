"""The compiled loops of attention on a CPU: one head of one strain.

Kept apart because importing numba takes a good part of a second, which only attention should pay.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dglcell.kernels.jit_numba import jit, reduction

# A signed row number might be negative, and the question costs time.
_row = np.uint64


@jit
def _head_of(x: Any, b: int, column: int, part: Any) -> None:
    """Copy columns of strain b from ``x`` [N, B, H] to ``part`` [N, D]."""
    for u in range(part.shape[0]):
        for d in range(part.shape[1]):
            part[u, d] = x[u, b, column + d]


@jit
def _largest_in_degree(starts: Any) -> int:
    largest = 0
    for v in range(len(starts) - 1):
        largest = max(largest, starts[v + 1] - starts[v])
    return largest


@lru_cache(maxsize=8)
def attend_of_width(D: int) -> Any:
    """The forward loops for heads D wide; a width known to the compiler makes them about twice as fast."""

    def attend(
        b: int,
        head: int,
        keys: Any,
        queries: Any,
        keep_NB: Any,
        keep_MB: Any,
        starts: Any,
        src: Any,
        weights: Any,
        vectors: Any,
        edge_vectors: Any,
        slope: Any,
        out: Any,
        logsum: Any,
    ) -> None:
        """Attend from every kept node; rows of other nodes and those without surviving in-edges stay as they are.

        Args:
            b, head: of A heads.
            keys, queries: [N, B, A · D] and [M, B, A · D], float32 or float64; the type of all that follows.
            keep_NB, keep_MB: bool.
            starts: [M + 1] int64, in-edges of each destination.
            src: [E] sources, any integer type.
            weights: [E], or None.
            vectors, edge_vectors: [A, D].
            slope: of LeakyReLU.
            out: [M, B, A · D] is written.
            logsum: [M, B, A] is written: logarithm of the sum of the exponentials of the scores.
        """
        key, column = np.empty((len(keys), D), keys.dtype), head * D
        _head_of(keys, b, column, key)
        vector, edge_vector = vectors[head].copy(), edge_vectors[head].copy()
        logits = np.empty(_largest_in_degree(starts), keys.dtype)
        query, total = np.empty(D, keys.dtype), np.empty(D, keys.dtype)
        lowest = keys.dtype.type(-np.inf)
        for v in range(len(keep_MB)):
            first, degree = starts[v], _row(starts[v + 1] - starts[v])
            if not keep_MB[v, b]:
                continue
            for d in range(D):
                query[d] = queries[v, b, column + d]
                total[d] = 0
            top = lowest
            for i in range(degree):
                u = _row(src[first + i])
                logit = keys.dtype.type(0)
                for d in range(D):
                    x = key[u, d] + query[d]
                    if weights is not None:
                        x += weights[first + i] * edge_vector[d]
                    logit += vector[d] * (x if x > 0 else slope * x)
                logit = logit if keep_NB[u, b] else lowest
                logits[i] = logit
                top = max(top, logit)
            if top == lowest:
                continue
            denominator = keys.dtype.type(0)
            for i in range(degree):
                logits[i] = np.exp(logits[i] - top)
                denominator += logits[i]
            for i in range(degree):
                u = _row(src[first + i])
                for d in range(D):
                    total[d] += logits[i] * key[u, d]
            logsum[v, b, head] = top + np.log(denominator)
            for d in range(D):
                out[v, b, column + d] = total[d] / denominator

    return reduction(attend)


@lru_cache(maxsize=8)
def gradients_of_width(D: int) -> Any:
    """The backward loops for heads D wide."""

    def gradients(
        b: int,
        head: int,
        keys: Any,
        queries: Any,
        keep_NB: Any,
        keep_MB: Any,
        starts: Any,
        src: Any,
        weights: Any,
        vectors: Any,
        edge_vectors: Any,
        slope: Any,
        out: Any,
        logsum: Any,
        grad: Any,
        d_keys: Any,
        d_queries: Any,
        d_vectors: Any,
        d_edge_vectors: Any,
    ) -> None:
        """Write the gradients, given that of ``out``: scores are computed anew, shares from their ``logsum``.

        The first fourteen arguments are those of the forward loops. ``grad``, ``d_keys`` and ``d_queries`` have the
        shapes of ``out``, ``keys`` and ``queries``; ``d_vectors`` and ``d_edge_vectors`` are [B, A, D].
        """
        key, column = np.empty((len(keys), D), keys.dtype), head * D
        _head_of(keys, b, column, key)
        d_key = np.zeros_like(key)
        vector, edge_vector = vectors[head].copy(), edge_vectors[head].copy()
        d_vector, d_edge_vector = np.zeros(D, keys.dtype), np.zeros(D, keys.dtype)
        query, upstream, d_query = np.empty(D, keys.dtype), np.empty(D, keys.dtype), np.empty(D, keys.dtype)
        for v in range(len(keep_MB)):
            if not keep_MB[v, b]:
                continue
            # The mean over in-edges of the gradient with respect to their shares.
            mean = keys.dtype.type(0)
            for d in range(D):
                query[d] = queries[v, b, column + d]
                upstream[d] = grad[v, b, column + d]
                d_query[d] = 0
                mean += upstream[d] * out[v, b, column + d]
            for e in range(starts[v], starts[v + 1]):
                u = _row(src[e])
                if not keep_NB[u, b]:
                    continue
                logit, d_share = keys.dtype.type(0), keys.dtype.type(0)
                for d in range(D):
                    x = key[u, d] + query[d]
                    if weights is not None:
                        x += weights[e] * edge_vector[d]
                    logit += vector[d] * (x if x > 0 else slope * x)
                    d_share += upstream[d] * key[u, d]
                share = np.exp(logit - logsum[v, b, head])
                d_logit = share * (d_share - mean)
                for d in range(D):
                    x = key[u, d] + query[d]
                    if weights is not None:
                        x += weights[e] * edge_vector[d]
                    d_vector[d] += d_logit * (x if x > 0 else slope * x)
                    d_x = d_logit * vector[d] * (keys.dtype.type(1) if x > 0 else slope)
                    if weights is not None:
                        d_edge_vector[d] += weights[e] * d_x
                    d_query[d] += d_x
                    d_key[u, d] += d_x + share * upstream[d]
            for d in range(D):
                d_queries[v, b, column + d] = d_query[d]
        for n in range(len(key)):
            for d in range(D):
                d_keys[n, b, column + d] = d_key[n, d]
        d_vectors[b, head] = d_vector
        d_edge_vectors[b, head] = d_edge_vector

    return reduction(gradients)
