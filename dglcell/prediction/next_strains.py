"""Choose which strains to measure next: a batch of candidates that are worth the most together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dglcell.data.partition import Keys
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError
from dglcell.prediction import EFFECT, SICK
from dglcell.prediction.conditions import added_column
from dglcell.prediction.design import Design
from dglcell.prediction.intervals import Intervals
from dglcell.prediction.known_strains import are_known
from dglcell.prediction.predict import PART_STRAINS, Rows, predict_rows
from dglcell.prediction.table import GenotypeTable, predicted_column, spread_column
from dglcell.training.checkpoint import Trained
from dglcell.uncertainty.calibration import interval_columns, probability_column

KEPT = 20_000
"""An informative batch is chosen among so many candidates, the most uncertain ones."""

OWN = 0.25
"""This share of the variance of a strain is its own: it stays if all strains with the same genes are measured."""

Values = NDArray[np.floating]


@dataclass(frozen=True)
class Candidates:
    """These are the strains that may be measured, with their predictions.

    Attributes:
        genes: names of the genes of the cell graph.
        columns: columns of their predictions, [n] each.
        available: [n] whether a strain can be predicted, and was not measured yet.
    """

    rows: Rows
    genes: tuple[str, ...]
    columns: dict[str, NDArray[Any]]
    available: NDArray[np.bool_]
    phenotype: str

    @classmethod
    def of(
        cls,
        members: Sequence[Trained],
        rows: Rows,
        phenotype: str,
        *,
        measured: Keys | None = None,
        intervals: Intervals | None = None,
        batch_size: int | None = None,
        report: Callable[[str], None] = lambda text: None,
    ) -> Candidates:
        """Predict candidates, part by part.

        Args:
            measured: strains that are left out, as `strains_of_runs` returns them; None for none.
            intervals: as for `predict_rows`.
            batch_size: strains per forward pass; as many as fit into memory where None.
            report: is told of every part.
        """
        genes, found, is_open = members[0].cell.genes.names, [], []
        for first in range(0, len(rows), PART_STRAINS):
            part = rows.part(first, min(first + PART_STRAINS, len(rows)))
            found.append(predict_rows(members, part, batch_size=batch_size, intervals=intervals))
            known = part.is_known.copy()
            if measured is not None:
                known &= ~are_known(part.record(genes), members[0], measured)
            is_open.append(known)
            report(f"{first + len(part):,} of {len(rows):,} candidates")
        columns = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
        return cls(rows, genes, columns, np.concatenate(is_open), phenotype)

    def strains(self, which: NDArray[np.integer]) -> Strains:
        """Return some of the candidates."""
        return self.rows.chosen(which, self.genes) if isinstance(self.rows, Design) else self.rows.strains.take(which)

    @property
    def predicted(self) -> NDArray[np.float64]:
        """Return predictions, or calibrated probabilities of a class, [n]."""
        name = probability_column(self.phenotype)
        return self.columns[name if name in self.columns else predicted_column(self.phenotype)].astype(float)

    @property
    def uncertainty(self) -> Values | None:
        """Return the standard deviation over seeds, else half the width of intervals, [n]; None where there is neither.

        That of a class is the standard deviation of a label, √(p (1 − p)).
        """
        low, high = interval_columns(self.phenotype)
        if probability_column(self.phenotype) in self.columns:
            return np.sqrt(self.predicted * (1 - self.predicted))
        if spread_column(self.phenotype) in self.columns:
            return self.columns[spread_column(self.phenotype)].astype(float)
        return (self.columns[high].astype(float) - self.columns[low]) / 2 if low in self.columns else None

    def table(self, which: NDArray[np.integer]) -> tuple[GenotypeTable, dict[str, NDArray[Any]]]:
        """Return some candidates as a table, and the columns of their predictions."""
        strains = self.strains(which)
        if isinstance(self.rows, Design):
            texts = _texts(strains, self.rows.size)
            header, rows = list(texts), [list(row) for row in zip(*texts.values(), strict=True)]
        else:
            header, rows = self.rows.header, [self.rows.rows[i] for i in which]
        ranked = [[str(rank), *row] for rank, row in enumerate(rows, start=1)]
        made = GenotypeTable(["rank", *header], ranked, strains, np.ones(len(which), bool))
        return made, {name: column[which] for name, column in self.columns.items()}


def _texts(strains: Strains, size: int) -> dict[str, list[str]]:
    """Return the columns of genes, strengths and conditions of strains that change ``size`` genes each."""
    genes = strains.genotypes
    found = {f"gene_{k + 1}": [one[k] for one in genes] for k in range(size)}
    if strains.strengths is not None:
        left = strains.strengths.reshape(-1, size).T
        found |= {f"strength_{k + 1}": [f"{strength:g}" for strength in of] for k, of in enumerate(left.tolist())}
    shown = {added_column(name): strains.shown(name).tolist() for name in strains.conditions}
    return found | {
        name: [value if isinstance(value, str) else f"{value:g}" for value in of] for name, of in shown.items()
    }


def choose_next(candidates: Candidates, strategy: str, size: int, per_gene: int | None = None) -> NDArray[np.int64]:
    """Return which candidates to measure next, the first one first.

    Args:
        strategy: ``effect``: predictions that are farthest from the median of all candidates. ``sick``: the lowest
            upper ends of intervals, or the highest probabilities of class 1. ``informative``: strains whose phenotypes
            are the most uncertain together (`most_uncertain_together`).
        per_gene: most strains that change the same gene; the others follow only where too few are left. For ``effect``
            and ``sick``.

    Raises:
        ConfigError: there are fewer candidates, or nothing says how uncertain predictions are.
    """
    there = np.flatnonzero(candidates.available)
    if size > len(there):
        raise ConfigError(
            "the batch is larger than the number of candidates",
            got=f"--batch {size:,}",
            expected=f"at most {len(there):,}, of {len(candidates.available):,} without those that are measured or "
            "have genes that the model lacks",
            do="choose a smaller batch, or more candidates",
        )
    predicted, uncertainty = candidates.predicted[there], candidates.uncertainty
    if strategy == EFFECT:
        score = np.abs(predicted - np.median(predicted))
    elif uncertainty is None:
        raise ConfigError(
            f"`--strategy {strategy}` needs to know how uncertain predictions are",
            got="one run without intervals",
            do="add `--interval 0.9`, or give the folder of an experiment with several seeds",
        )
    elif strategy == SICK:
        score = _sick(candidates, uncertainty)[there]
    else:
        sd = uncertainty[there]
        kept = np.argsort(-sd, kind="stable")[:KEPT]
        return there[kept[most_uncertain_together(_kinship(candidates.strains(there[kept])), sd[kept], size)]]
    return _within_limit(candidates, there[np.argsort(-score, kind="stable")], size, per_gene)


def _sick(candidates: Candidates, uncertainty_n: Values) -> Values:
    """Return how surely strains are sick: minus the upper ends of intervals, or probabilities of class 1."""
    if probability_column(candidates.phenotype) in candidates.columns:
        return candidates.predicted
    _, high = interval_columns(candidates.phenotype)
    if high in candidates.columns:
        return -candidates.columns[high].astype(float)
    return -(candidates.predicted + 2 * uncertainty_n)


def _within_limit(
    candidates: Candidates, order: NDArray[np.int64], size: int, per_gene: int | None
) -> NDArray[np.int64]:
    """Return the first strains of an order; at most ``per_gene`` change the same gene, as long as others are left."""
    if per_gene is None:
        return order[:size]
    times: Counter[int] = Counter()
    chosen, left = list[int](), list[int]()
    for first in range(0, len(order), KEPT):
        strains = candidates.strains(order[first : first + KEPT])
        targets = np.split(strains.targets, strains.offsets[1:-1])
        for number, genes in zip(order[first : first + KEPT].tolist(), targets, strict=True):
            if all(times[gene] < per_gene for gene in genes.tolist()):
                times.update(genes.tolist())
                chosen.append(number)
                if len(chosen) == size:
                    return np.array(chosen)
            elif len(left) < size:
                left.append(number)
    return np.array((chosen + left)[:size])


def _kinship(strains: Strains) -> sparse.csr_matrix:
    """Return rows of length 1 whose products say how much strains have in common: what is lost of genes, conditions."""
    parts = [strains.design]
    for name, categories in strains.conditions.items():
        if categories:
            values = strains.shown(name)
            places = np.searchsorted(sorted(categories), values)
            one_hot = (np.ones(len(strains)), (np.arange(len(strains)), places))
            parts.append(sparse.csr_matrix(one_hot, shape=(len(strains), len(categories))))
    joined = sparse.hstack(parts, format="csr")
    lengths = np.sqrt(np.asarray(joined.multiply(joined).sum(axis=1)).reshape(-1))
    return sparse.diags_array(1 / np.where(lengths > 0, lengths, 1.0)) @ joined


def most_uncertain_together(kinship_nF: sparse.csr_matrix, sd_n: Values, size: int) -> NDArray[np.int64]:
    """Return strains whose phenotypes have the largest joint entropy, by greedy choice.

    Phenotypes are taken as normal, with standard deviations s and the correlation (1 − o) k(i, j) + o δ(i, j), where k
    is what two strains have in common and o is ``OWN``. The next strain is the one with the largest variance that is
    left when the chosen ones are known. That is greedy maximisation of a determinant, by Cholesky factors that grow by
    a column (Chen, Zhang and Zhou 2018, *Fast greedy MAP inference for determinantal point process*).

    Args:
        kinship_nF: rows of length 1, or 0, whose products are k.
        sd_n: s; if all are 0, only kinship counts.
        size: number of strains, at most n.
    """
    sd_n = sd_n if sd_n.any() else np.ones(len(sd_n))
    left_n = sd_n**2
    available = np.ones(len(sd_n), bool)
    factors: list[Values] = []
    chosen = []
    for _ in range(size):
        i = int(np.argmax(np.where(available, left_n, -np.inf)))
        chosen.append(i)
        available[i] = False
        if left_n[i] <= 0:
            continue
        common = (1 - OWN) * np.asarray((kinship_nF @ kinship_nF[[i]].T).todense()).reshape(-1)
        covariance = sd_n * sd_n[i] * common
        covariance[i] = sd_n[i] ** 2
        for factor in factors:
            covariance -= factor * factor[i]
        factors.append(covariance / np.sqrt(left_n[i]))
        left_n = np.maximum(left_n - factors[-1] ** 2, 0.0)
    return np.array(chosen, np.int64)
