"""Fit a Gaussian process that learns how much each number of strains counts, such as a mismatch of a guide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.baselines.kernel_ridge import LANDMARKS, MOST_EXACT, Compared, KernelBaseline, Values, limit, needs_more
from dglcell.baselines.problem import MORE, Covariates, Family, Problem, blocks
from dglcell.data.strains import Strains

FEWEST = 2  # numbers that strains have; of a single one the kernel ridge over strains finds the length
LEARNED_FROM, STEPS = 1000, 40  # targets of training strains that the covariance is learned from, and steps of L-BFGS
NOISES = (1.0, 2.0, 4.0)  # multiples of the learned variance of the noise, of which the validation part chooses
# Where v, w, s, θ and the noise begin, and how strongly their logarithms are held there.
USUAL, HELD = (0.3, 0.1, 1.0, 0.3, 0.1), (0.02, 0.02, 0.02, 0.05, 0.0)
JITTER, MOST_LOGARITHM = 1e-6, 9.0


@dataclass(frozen=True)
class GaussianProcess(KernelBaseline):
    """Predict with effects of genes and of categories, parts of which are alike for similar numbers.

    The covariance of two strains with the standardised numbers z and z' is
    Σ_p A_p (v_p exp(−s_p Σ_m θ_m (z_m − z'_m)² / 2) + w_p). Of the A_p one is 1, one says how alike the genes are that
    they lose, one how much they lose of the same genes, and of each covariate with categories one is 1 if they have the
    same, else 0. The positive v, w, s and θ and the variance of the noise make the labels likeliest.
    """

    genes: NDArray[np.int64] = field(repr=False)  #: [G] indices of the genes that training strains change, ascending
    matrix: NDArray[np.float32] = field(repr=False)  #: [N, G] how alike genes are, a row for every gene
    covariates: Covariates = field(repr=False)
    train: Compared = field(repr=False)  #: [T] the training strains, or the landmarks among them
    #: logarithms of v, w and s of all A_p, of θ, and of the noise
    logarithms: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), repr=False)

    def pieces(self, strains: Strains) -> Iterator[NDArray[np.float64]]:
        size = max(self.train.sums.shape[0], len(self.train.targets) * strains.max_deletions)
        for rows in blocks(len(strains), size * (4 + self.train.codes.shape[1])):
            part = Compared.of(strains.slice(rows.start, rows.stop), self.covariates)
            yield self._between(part)(torch.from_numpy(self.logarithms)).numpy()

    def _between(self, part: Compared) -> _Covariance:
        train, columns = self.train, np.searchsorted(self.genes, self.train.targets)
        lost = part.amounts[:, None] * train.amounts
        of_targets = self.matrix[part.targets][:, columns] * lost, (part.targets[:, None] == train.targets) * lost
        of_genes = [part.sums @ (train.sums @ one.T).T for one in of_targets]
        of_codes = [here[:, None] == there for here, there in zip(part.codes.T, train.codes.T, strict=True)]
        found = np.stack([np.ones(of_genes[0].shape), *of_genes, *of_codes]).astype(np.float64)
        return _Covariance(*map(torch.from_numpy, (found, part.numbers, train.numbers)))

    def learned(self, strains: Strains, y: Values) -> GaussianProcess:
        """Return the process with the covariance that makes the labels of some strains, [S], likeliest."""
        part = Compared.of(strains, self.covariates)
        covariance = replace(self, train=part)._between(part)
        usual, held = (torch.from_numpy(np.repeat(of, covariance.sizes)) for of in (np.log(USUAL), np.array(HELD)))
        labels, logarithms = torch.from_numpy((y - y.mean()) / (y.std() or 1)), usual.clone().requires_grad_()
        optimizer = torch.optim.LBFGS([logarithms], max_iter=STEPS, history_size=20, line_search_fn="strong_wolfe")

        def unlikely() -> Tensor:
            optimizer.zero_grad()
            noise = (logarithms[-1].exp() + JITTER) * torch.eye(len(y), dtype=torch.float64)
            root = torch.linalg.cholesky(covariance(logarithms) + noise)
            loss = torch.cholesky_solve(labels[:, None], root)[:, 0] @ labels / 2 + root.diagonal().log().sum()
            loss = loss + held @ (logarithms - usual).square()
            loss.backward()
            return loss

        optimizer.step(unlikely)
        return replace(self, logarithms=logarithms.detach().numpy())


@dataclass(frozen=True)
class _Covariance:
    """Compute the covariance from logarithms of what is learned."""

    alike: Tensor  #: [A, S, T] the A_p
    here: Tensor  #: [S, M] numbers
    there: Tensor  #: [T, M]

    @property
    def sizes(self) -> list[int]:
        return [len(self.alike)] * 3 + [self.here.shape[1], 1]

    def __call__(self, logarithms: Tensor) -> Tensor:
        varied, constant, scales, weights, _ = logarithms.clamp(max=MOST_LOGARITHM).exp().split(self.sizes)
        here, there = self.here * weights.sqrt(), self.there * weights.sqrt()
        squares = (here.square().sum(1)[:, None] + there.square().sum(1) - 2 * here @ there.T).clamp(min=0)
        found = torch.zeros_like(squares)
        for alike, v, w, s in zip(self.alike, varied, constant, scales, strict=True):
            found = found + alike * (v * (-s / 2 * squares).exp() + w)
        return found


def fit_gaussian_process(problem: Problem) -> Iterator[GaussianProcess]:
    """Yield a model for each multiple of the noise."""
    problem, among, limited = limit(problem, MOST_EXACT, LANDMARKS)
    strains, y, similarity = problem.train, problem.y_train, problem.similarity()
    covariates = Covariates.of(strains)
    known = similarity.genes, similarity.matrix, covariates, Compared.of(among, covariates)
    model = GaussianProcess(*known, mean=float(y.mean()), limited=limited)
    some = problem.sampled(int(LEARNED_FROM / max(1.0, strains.num_deletions.mean())))[0]
    model = model.learned(some.train, some.y_train)
    noise = max(float(np.exp(model.logarithms[-1])), JITTER)  # labels without noise would leave the system singular
    yield from model.fitted(among, strains, y, [noise * factor for factor in NOISES])


def _lacks(problem: Problem) -> str | None:
    train, reason = problem.train, needs_more(problem)
    found = sum(not categories and name not in train.computed for name, categories in train.covariates.items())
    return reason if found >= FEWEST else f"needs strains with {FEWEST} numbers or more (found {found})"


GAUSSIAN_PROCESS = Family(fit_gaussian_process, _lacks, MORE)
