"""Null model: deletions act independently, each gene with one effect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from dglcell.baselines.strains import Strains, labelled
from dglcell.errors import ConfigError

TOLERANCE = 1e-8
MAX_ITERATIONS = 2000


@dataclass
class AdditiveRidge:
    """y = intercept + sum of the effects of the deleted genes; ridge regression, intercept not penalised.

    A gene that no training strain deletes has effect 0.

    Attributes:
        alpha: penalty on squared effects; a gene's effect is shrunk as if it had been measured ``alpha`` more
            times with effect 0.
    """

    alpha: float = 1.0
    intercept: float = field(default=0.0, init=False)
    effects: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise ConfigError("additive ridge: `alpha` must be positive", got=self.alpha)

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Solve the centred normal equations by conjugate gradients; missing labels (NaN) are ignored."""
        strains, labels = labelled(strains, y)
        design, count = strains.design, len(labels)
        gram = (design.T @ design).tocsr()
        gene_mean = np.asarray(design.mean(axis=0)).ravel()
        # The centred design is dense; its Gram matrix is the sparse one minus a rank-one term.
        diagonal = gram.diagonal() - count * gene_mean**2 + self.alpha
        size = strains.num_genes
        normal = LinearOperator(
            (size, size),
            matvec=lambda w: gram @ w - count * gene_mean * (gene_mean @ w) + self.alpha * w,
            dtype=np.float64,
        )
        jacobi = LinearOperator((size, size), matvec=lambda w: w / diagonal, dtype=np.float64)
        mean = float(labels.mean())
        right = design.T @ (labels - mean)
        self.effects, _ = cg(normal, right, rtol=TOLERANCE, maxiter=MAX_ITERATIONS, M=jacobi)
        self.intercept = mean - float(gene_mean @ self.effects)
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """[S] predictions in the units of the labels."""
        return self.intercept + strains.design @ self.effects
