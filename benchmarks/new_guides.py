"""Ask what a new CRISPRi guide of a known gene lacks: ``python -m benchmarks.new_guides OUT GUIDES``.

GUIDES is the table of titrated guides (Mathis et al. 2021) that `conf/110-mathis2020-crispri/random.yaml` reads. Guides
are drawn into parts with its fractions, and test parts are never touched: what is fitted to training guides is judged
on validation guides. A site is the place that guides bind; guides of one site differ in their mismatches alone.

The file says how the variance of growth divides into that between genes, sites and guides; how much two guides of a
site differ that differ in one base; what a kernel ridge over genes, sites and mismatches predicts, and randomised trees
(Geurts et al. 2006, *Mach Learn* 63:3; scikit-learn, in the extra `bench`) that see its prediction, the growth of the
nearest guides, bounds by guides whose mismatches contain each other, bases of mismatches and the sequence; where the
rest of the variance lies; and how alike what the kernel ridge lacks is in two media, as noise would not be.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor

from dglcell.data.sources.guides import BASES
from dglcell.files.atomic import write_json
from dglcell.machine.processor import processor_name

Values = NDArray[np.float64]

GROWTH, OTHER = "growth_glucose", "growth_glycerol"
FRACTIONS, DRAWS = (0.7, 0.15), 3
PENALTIES = (0.01, 0.03, 0.1, 0.2, 0.4)
NEAREST = 4
"""So many guides of the same site are shown to the trees."""


class Guides:
    """Hold guides with a growth in glucose: their sites, genes, mismatches and how alike they are.

    Args:
        table: the published table.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        rows = table[table[GROWTH].notna() & table["b_number"].notna()].reset_index(drop=True)
        self.growth, self.other = (rows[name].to_numpy(float) for name in (GROWTH, OTHER))
        names = rows["gene"] + rows["series"].astype(str) + " " + rows["pam_location"].astype(str)
        self.gene, self.site = (pd.factorize(of)[0] for of in (rows["gene"], names))
        self.base = np.array([[BASES.index(base) for base in one] for one in rows["sequence"]])
        counts = np.zeros((self.site.max() + 1, self.base.shape[1], len(BASES)))
        for place in range(self.base.shape[1]):
            np.add.at(counts[:, place], (self.site, self.base[:, place]), 1)
        self.matching = counts.argmax(2)[self.site]
        self.differs = self.base != self.matching
        self.together = self.site[:, None] == self.site
        self.bases_apart = (self.base[:, None] != self.base).sum(2)
        self.substituted = np.where(self.differs, len(BASES) * self.matching + self.base, -1)

    def kernel(self) -> Values:
        """Return how alike guides are: of a gene, of a site, by their mismatches and by the bases of these."""
        wide = self.differs.astype(float)
        kinds = np.eye(len(BASES) ** 2)[self.substituted] * wide[..., None]
        by_place, by_base = (_gaussian(of.reshape(len(of), -1), span) for of, span in ((wide, 6), (kinds, 8)))
        near = 0.2 + 0.4 * (self.gene[:, None] == self.gene) + 0.4 * self.together
        return near * (0.7 * by_place + 0.3 * by_base)

    def features(self, train: NDArray[np.int64], predicted: Values) -> Values:
        """Return what trees see of every guide, [S, F]; NaN where there is nothing.

        Args:
            train: guides whose growth is known; that of a guide itself is never among its features.
            predicted: [S] what the kernel ridge says of each, of a training guide without itself.
        """
        known = np.zeros(len(self.growth), bool)
        known[train] = True
        kinds = np.eye(len(BASES) ** 2)[self.substituted] * self.differs[..., None]
        places = np.arange(self.differs.shape[1])
        first = np.where(self.differs, places, len(places)).min(1)
        last = np.where(self.differs, places, -1).max(1)
        near = np.array([self._neighbours(guide, known) for guide in range(len(known))])
        sequence = np.eye(len(BASES))[self.matching].reshape(len(known), -1)
        own = np.column_stack([self.differs, self.differs.sum(1), first, last, kinds.sum(1), sequence])
        return np.column_stack([own, near, predicted])

    def _neighbours(self, guide: int, known: NDArray[np.bool_]) -> list[float]:
        others = known & self.together[guide]
        others[guide] = False
        rows = np.flatnonzero(others)
        rows = rows[np.argsort(self.bases_apart[guide, rows], kind="stable")]
        of_gene = known & (self.gene == self.gene[guide])
        of_gene[guide] = False
        wider = rows[(self.differs[rows] >= self.differs[guide]).all(1)]
        narrower = rows[(self.differs[rows] <= self.differs[guide]).all(1)]
        growth = self.growth
        padded = [*rows[:NEAREST], *[-1] * (NEAREST - len(rows[:NEAREST]))]
        nearest = [(growth[j], self.bases_apart[guide, j]) if j >= 0 else (np.nan, np.nan) for j in padded]
        bounds = [growth[some].min() if len(some) else np.nan for some in (wider, rows)]
        bounds += [growth[some].max() if len(some) else np.nan for some in (narrower, rows)]
        means = [growth[some].mean() if some.any() else np.nan for some in (others, of_gene)]
        return [*np.ravel(nearest), *bounds, *means]


def _gaussian(rows: Values, span: float) -> Values:
    squares = (rows**2).sum(1)
    kernel: Values = np.exp(-(squares[:, None] + squares - 2 * rows @ rows.T) / span)
    return kernel


def ridge(kernel: Values, growth: Values, train: NDArray[np.int64], judged: NDArray[np.int64]) -> Values:
    """Return what a kernel ridge says of all guides, of those that it is fitted to without themselves.

    ``judged`` chooses its penalty.
    """
    mean, found = growth[train].mean(), []
    for penalty in PENALTIES:
        inverse = np.linalg.inv(kernel[np.ix_(train, train)] + penalty * np.eye(len(train)))
        weights = inverse @ (growth[train] - mean)
        predicted: Values = kernel[:, train] @ weights + mean
        predicted[train] = growth[train] - weights / np.diag(inverse)
        found.append((float(np.square(predicted - growth)[judged].mean()), predicted))
    return min(found, key=lambda one: one[0])[1]


def variances(values: Values, gene: NDArray[np.int64], site: NDArray[np.int64]) -> dict[str, float]:
    """Return which shares of a variance lie between genes, between the sites of a gene, and within sites."""
    frame = pd.DataFrame({"value": values, "gene": gene, "site": site})
    of_gene, of_site = (frame.groupby(key)["value"].transform("mean") for key in ("gene", "site"))
    parts = {"genes": of_gene, "sites of a gene": of_site - of_gene, "guides of a site": frame["value"] - of_site}
    return {name: round(float(part.var(ddof=0) / values.var()), 3) for name, part in parts.items()}


def one_base_apart(guides: Guides) -> float:
    """Return half the mean squared difference of guides of a site that differ in one base, over the variance."""
    one, other = np.nonzero(np.triu(guides.together & (guides.bases_apart == 1)))
    return float(np.square(guides.growth[one] - guides.growth[other]).mean() / 2 / guides.growth.var())


def draw(guides: Guides, seed: int) -> dict[str, Any]:
    """Return the results of one draw on its validation part."""
    order = np.random.default_rng(seed).permutation(len(guides.growth))
    ends = [round(len(order) * share) for share in np.cumsum(FRACTIONS)]
    train, judged = order[: ends[0]], order[ends[0] : ends[1]]
    kernel = guides.kernel()
    predicted = ridge(kernel, guides.growth, train, judged)
    features = guides.features(train, predicted)
    trees = ExtraTreesRegressor(400, min_samples_leaf=3, max_features=0.4, random_state=0)
    of_trees = trees.fit(features[train], guides.growth[train]).predict(features[judged])
    lacking = guides.growth[judged] - of_trees
    squares = np.sort(lacking**2)[::-1]
    both = ~np.isnan(guides.other)
    fitted = train[both[train]]
    other = ridge(kernel, guides.other, fitted, judged[both[judged]])
    measured = judged[both[judged]]
    lacks = [(of - by)[measured] for of, by in ((guides.growth, predicted), (guides.other, other))]
    return {
        "seed": seed,
        "guides": len(judged),
        "kernel ridge": round(float(np.corrcoef(predicted[judged], guides.growth[judged])[0, 1]), 4),
        "randomised trees": round(float(np.corrcoef(of_trees, guides.growth[judged])[0, 1]), 4),
        "variance left by trees": round(float(lacking.var() / guides.growth[judged].var()), 3),
        "where it lies": variances(lacking, guides.gene[judged], guides.site[judged]),
        "share of the worst twentieth": round(float(squares[: len(squares) // 20].sum() / squares.sum()), 3),
        "what is lacking in two media": round(float(np.corrcoef(*lacks)[0, 1]), 3),
    }


def main(out: str, table: str) -> None:
    """Write the file."""
    guides = Guides(pd.read_csv(table))
    write_json(
        Path(out),
        {
            "command": "python -m benchmarks.new_guides OUT GUIDES",
            "processor": processor_name(),
            "guides": len(guides.growth),
            "variance": variances(guides.growth, guides.gene, guides.site),
            "one base apart": round(one_base_apart(guides), 3),
            "draws": [draw(guides, seed) for seed in range(DRAWS)],
        },
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
