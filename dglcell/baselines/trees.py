"""Fit gradient-boosted trees to a few numbers of each strain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dglcell.baselines.problem import ANY, FOLDS, MOST_STRAINS, Baseline, Covariates, Family, Problem, Reactions, blocks
from dglcell.baselines.simple import AdditiveRidge
from dglcell.data.strains import Strains

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingRegressor

AXES = 32
LEAVES = (7, 31)
"""Most leaves of a tree. Above ``MOST_STRAINS`` only the last is tried, the better there. On 83,118 pairs of Collins
2007 a sample of the strains loses a seventh of the correlation, and longer steps a tenth of it for new genes."""
TREES_OF = (25, 50, 100, 200)
ALPHA = 10.0
"""Penalty of the additive effects that trees see."""


@dataclass(frozen=True)
class Features:
    """Make numbers of strains: [S, F], the same for every order of their genes.

    They are how many genes a strain changes and how much of them it lacks; sums of the genes' similarities, and of
    products of these over its pairs; lost reactions, covariates, and what additive effects predict.
    """

    #: [N, A] leading singular vectors of the similarity of genes, scaled by the singular values
    of_genes: NDArray[np.float32]
    of_reactions: NDArray[np.float32]  #: [R, A] the same of the reactions that training strains lose
    reactions: Reactions | None  #: tells which reactions a strain loses; None where that is not asked
    covariates: Covariates  #: those of the training strains
    additive: AdditiveRidge  #: effects of genes and covariates, fitted to the training strains

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Return the features of a problem."""
        reactions = None if "activities" in (problem.beyond_deletions or "") else problem.reactions
        of_reactions = np.zeros((0, 0), np.float32) if reactions is None else _axes(reactions.lost(problem.train))
        additive = AdditiveRidge(ALPHA).fit(problem.train, problem.y_train)
        of_genes = _axes(problem.similarity().matrix.T)
        return cls(of_genes, of_reactions, reactions, Covariates.of(problem.train), additive)

    def without_own(self, problem: Problem) -> NDArray[np.float64]:
        """Return the features of the training strains, whose additive effects are fitted to other folds, [S, F]."""
        from sklearn.model_selection import KFold  # is slow to import, and needed to fit only

        found = self(problem.train)
        if len(problem.train) > FOLDS:
            for others, fold in KFold(FOLDS, shuffle=True, random_state=0).split(found):
                ridge = AdditiveRidge(ALPHA).fit(problem.train.take(others), problem.y_train[others])
                found[fold, 0] = ridge.predict(problem.train.take(fold))
        return found

    def __call__(self, strains: Strains) -> NDArray[np.float64]:
        """Return the features of strains, [S, F]; what additive effects predict comes first."""
        amounts, sums = strains.lost, np.zeros((len(strains), 2 * self.of_genes.shape[1]))
        of_targets = self.of_genes[strains.targets] * amounts[:, None]
        for axis, values in enumerate(of_targets.T.astype(np.float64)):
            sums[:, 2 * axis] = strains.total(values)
            sums[:, 2 * axis + 1] = np.square(sums[:, 2 * axis]) - strains.total(np.square(values))
        columns = [self.additive.predict(strains), strains.num_deletions, strains.total(amounts)]
        if self.reactions is not None:
            found = self.reactions.lost(strains)
            columns += [np.asarray(found.sum(axis=1)).ravel(), *(found @ self.of_reactions).T]
        return np.concatenate([np.stack(columns, axis=1), sums, self.covariates.columns(strains).toarray()], axis=1)


def _axes(matrix: Any) -> NDArray[np.float32]:
    """Return the leading right singular vectors of a matrix, times their singular values: [columns, A]."""
    from sklearn.utils.extmath import randomized_svd  # is slow to import, and needed to fit only

    most = min(AXES, *(size - 1 for size in matrix.shape))
    if most < 1:
        return np.zeros((matrix.shape[1], 0), np.float32)
    _, sizes, axes = randomized_svd(matrix, most, n_iter=4, random_state=0)
    return (axes.T * sizes).astype(np.float32)


@dataclass(frozen=True)
class BoostedTrees(Baseline):
    """Predict a sum of regression trees (`sklearn.ensemble.HistGradientBoostingRegressor`)."""

    trees: int  #: number of trees
    leaves: int  #: most leaves of each
    features: Features = field(repr=False)
    depth: int = field(repr=False)  #: steps from a root to the farthest leaf
    start: float = field(repr=False)  #: what the trees are added to
    roots: NDArray[np.int64] = field(repr=False)  #: [T] the first node of each tree
    #: [V] the number of the feature that a node asks for; a leaf asks for any, and leads to itself
    feature: NDArray[np.int64] = field(repr=False)
    threshold: NDArray[np.float64] = field(repr=False)  #: [V] to the left go strains with at most this value
    children: NDArray[np.int64] = field(repr=False)  #: [V, 2] the nodes to the left and right
    value: NDArray[np.float64] = field(repr=False)  #: [V] what a leaf adds

    @classmethod
    def of(cls, fitted: HistGradientBoostingRegressor, features: Features) -> Self:
        """Return the trees of a regressor as arrays."""
        each = [of_step[0].nodes for of_step in fitted._predictors]  # scikit-learn has no public way to them
        nodes, sizes = np.concatenate(each), [len(of) for of in each]
        roots = np.cumsum([0, *sizes[:-1]])
        here, leaf = np.arange(len(nodes)), nodes["is_leaf"].astype(bool)
        children = np.stack([nodes["left"], nodes["right"]], axis=1) + np.repeat(roots, sizes)[:, None]
        return cls(
            len(each),
            fitted.max_leaf_nodes,
            features,
            int(nodes["depth"].max()),
            float(np.ravel(fitted._baseline_prediction)[0]),
            roots,
            np.where(leaf, 0, nodes["feature_idx"]),
            np.where(leaf, np.inf, nodes["num_threshold"]),
            np.where(leaf[:, None], here[:, None], children),
            nodes["value"].astype(np.float64),
        )

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        return self.of_features(self.features(strains))

    def of_features(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return predictions from features, [S, F]."""
        found = np.full(len(numbers), self.start)
        for rows in blocks(len(numbers), self.trees):
            part = numbers[rows]
            strain, node = np.arange(len(part))[:, None], np.repeat(self.roots[None], len(part), axis=0)
            for _ in range(self.depth):
                right = part[strain, self.feature[node]] > self.threshold[node]
                node = self.children[node, right.astype(np.int64)]
            found[rows] += self.value[node].sum(axis=1)
        return found


def _fitted(problem: Problem) -> Iterator[Baseline]:
    from sklearn.ensemble import HistGradientBoostingRegressor  # is slow to import, and needed to fit only

    features = Features.of(problem)
    numbers = features.without_own(problem)
    for leaves in LEAVES[-1:] if len(problem.train) > MOST_STRAINS else LEAVES:
        settings: dict[str, Any] = {"max_leaf_nodes": leaves, "max_iter": TREES_OF[-1], "early_stopping": False}
        boosted = HistGradientBoostingRegressor(**settings, random_state=0).fit(numbers, problem.y_train)
        whole = BoostedTrees.of(boosted, features)
        for trees in TREES_OF:
            yield replace(whole, trees=trees, roots=whole.roots[:trees])


TREES = Family(_fitted, about=ANY)
