"""Define designs: all combinations of some genes. Strains are made from their numbers, never all at once."""

from __future__ import annotations

import functools
import logging
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dglcell.data.changes import activity_of
from dglcell.data.strains import Strains
from dglcell.errors import GenotypeError, listing
from dglcell.files.atomic import CONTROL, canonical_hash
from dglcell.files.parquet import named
from dglcell.graph.model_files import is_no_gene
from dglcell.graph.vocabulary import Vocabulary
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.prediction import KINDS
from dglcell.prediction.covariates import Completion, added_column

log = logging.getLogger("dglcell")

MOST_STRAINS = 2**63 - 1


@dataclass(frozen=True)
class Design:
    """List the strains ``start`` to ``stop`` of ``itertools.combinations(genes, size)``.

    In this order neighbouring strains share their first genes. With activities, each combination comes once for each of
    ``itertools.product(activities, repeat=size)``.
    """

    genes: tuple[int, ...]  #: distinct indices of the cell graph's genes; combinations keep their order
    size: int  #: K, changed genes of each strain
    start: int  #: number of the first strain, from 0
    stop: int  #: number of the strain after the last
    activities: tuple[float, ...] = ()  #: what may be left of a gene; all genes are deleted where there are none
    #: a strain that changes no gene, with the covariates of all strains; None where there are none
    background: Strains | None = None
    names: tuple[str, ...] = ()  #: names of the cell graph's genes, where simulators compute columns
    #: adds what simulators compute of strains; None where the model sees nothing of that kind
    complete: Completion | None = None

    @classmethod
    def of(
        cls,
        genes: Sequence[int],
        size: int,
        start: int = 0,
        limit: int | None = None,
        *,
        activities: Sequence[float] = (),
        background: Strains | None = None,
        names: tuple[str, ...] = (),
        complete: Completion | None = None,
    ) -> Design:
        """Make the design of all combinations of ``genes``, or of ``limit`` of them from number ``start``.

        Raises:
            GenotypeError: there are fewer genes than deletions, more combinations than 64 bits count, or ``start``
                lies behind the last of them; or an activity is no amount, or listed twice.
        """
        left = tuple(activity_of(activity) for activity in activities)
        if len(set(left)) < len(left):
            raise GenotypeError("an activity of the design is listed twice", got=listing(left), do="list each once")
        kind = KINDS.get(size, f"sets of {size} genes")
        if len(genes) < size:
            what, expected = f"no {kind}: there are too few genes", f"{size} or more"
            raise GenotypeError(what, got=len(genes), expected=expected, do="list more genes")
        total = math.comb(len(genes), size) * max(1, len(left)) ** size
        if total > MOST_STRAINS:
            raise GenotypeError(f"too many {kind} to be numbered", got=f"{total:,}", do="list fewer genes")
        if start >= total:
            what, do = f"`--start` lies behind the last of the {kind}", "start earlier, or list more genes"
            raise GenotypeError(what, got=f"{start:,}", expected=f"0 … {total - 1:,}", do=do)
        stop = total if limit is None else min(total, start + limit)
        return cls(tuple(genes), size, start, stop, left, background, names, complete)

    def __len__(self) -> int:
        return self.stop - self.start

    def part(self, first: int, last: int) -> Design:
        """Return the strains from ``first`` to before ``last``, counted from the design's own first."""
        return replace(self, start=self.start + first, stop=self.start + last)

    @property
    def is_known(self) -> NDArray[np.bool_]:
        """Return whether the cell graph has all genes of each strain, which it has."""
        return np.ones(len(self), bool)

    def describe(self) -> dict[str, Any]:
        """Describe in plain containers which strains these are, given the cell graph, and in which order."""
        sha256 = canonical_hash([self.genes, self.size, self.start, self.stop])
        about = {"genes": len(self.genes), "deletions": self.size, "start": self.start, "stop": self.stop}
        # Designs without these are described as they always were, so that their outputs stay complete.
        more: dict[str, Any] = {"activities": list(self.activities)} if self.activities else {}
        if self._covariates:
            more["covariates"] = self._covariates
        return {"design_sha256": sha256, **about, **more}

    def strains(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the [n, K] gene indices of the strains with these numbers, counted from 0 over the whole design."""
        return np.asarray(self.genes, np.int64)[self._positions(numbers // self._choices)]

    def left(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the [n, K] activities of the genes of the strains with these numbers."""
        if not self.activities:
            return np.zeros((len(numbers), self.size), np.float32)
        places = len(self.activities) ** np.arange(self.size - 1, -1, -1)
        digits = numbers[:, None] // places % len(self.activities)
        return np.asarray(self.activities, np.float32)[digits]

    @property
    def _choices(self) -> int:
        return max(1, len(self.activities)) ** self.size

    def _positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the [n, K] positions of the strains' genes in the list of genes.

        Of the combinations of m genes out of those from position p on, in lexicographic order, C(N − p, m) −
        C(N − q, m) come before the first that begins at position q. So the first gene of the combination of number r
        is at the q with the smallest x = N − q for which C(x, m) ≥ C(N − p, m) − r.
        """
        count = len(self.genes)
        positions = np.empty((len(numbers), self.size), np.int64)
        rest = numbers.astype(np.int64)
        left = np.full(len(numbers), count, np.int64)
        for column in range(self.size):
            tails = _binomials(count, self.size - column)
            behind = tails[left] - rest
            found = np.searchsorted(tails, behind, side="left")
            positions[:, column] = count - found
            rest = tails[found] - behind
            left = found - 1
        return positions

    def record(self, names: tuple[str, ...]) -> Strains:
        """Return all strains, whose targets have these names."""
        return self.chosen(np.arange(len(self)), names)

    def chosen(self, which: NDArray[np.integer], names: tuple[str, ...]) -> Strains:
        """Return some strains, counted from the design's own first, whose targets have these names."""
        numbers = self.start + which.astype(np.int64)
        left = self.left(numbers).reshape(-1) if self.activities else None
        found = {} if self.background is None else self.background.columns
        columns = {column: np.repeat(values, len(numbers), axis=0) for column, values in found.items()}
        offsets = np.arange(len(numbers) + 1) * self.size
        made = Strains(names, self.strains(numbers).reshape(-1), offsets, columns, activities=left)
        return made if self.complete is None else self.complete(made)

    def columns(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the columns ``gene_1`` …, dictionary-encoded, ``activity_1`` … and ``covariate_<name>``."""
        numbers = np.arange(self.start, self.stop)
        found = {f"gene_{k + 1}": named(column, names) for k, column in enumerate(self.strains(numbers).T)}
        if self.activities:
            found |= {f"activity_{k + 1}": column for k, column in enumerate(self.left(numbers).T)}
        for name, value in self._covariates.items():
            same = np.zeros(len(self), np.int64)
            column = named(same, (value,)) if isinstance(value, str) else np.full(len(self), value, np.float32)
            found[added_column(name)] = column
        return found

    @property
    def _covariates(self) -> dict[str, str | float]:
        one = self.background
        return {} if one is None else {name: one.shown(name).tolist()[0] for name in one.covariates}

    def batches(self, size: int, worth_sharing: int | None = None) -> Iterator[GenotypeBatch]:
        """Yield the strains in order.

        A model may compute once what the strains of a batch have in common, so batches can end where their common
        genes do. Where a batch ends, and what its strains share, depends on where it begins alone.

        Args:
            size: most strains in a batch.
            worth_sharing: batches are not cut for genes that fewer strains have in common; they are never cut where
                None.

        Yields:
            Batches that name the genes that all of their strains have in common, K − 1 genes at most.
        """
        first = self.start
        while first < self.stop:
            number, shared = self._next_batch(first, size, worth_sharing)
            numbers = np.arange(first, first + number)
            genes = torch.from_numpy(self.strains(numbers)).reshape(-1)
            left = torch.from_numpy(self.left(numbers)).reshape(-1) if self.activities else None
            seen = None if self.background is None else self.background.to("cpu").perturbations.covariates
            covariates = None if seen is None else seen.expand(number, -1)
            if self.complete is not None:
                covariates = self.chosen(numbers - self.start, self.names).to("cpu").perturbations.covariates
            offsets = torch.arange(number + 1) * self.size
            yield GenotypeBatch(genes, offsets, self.size, left, shared, covariates=covariates)
            first += number

    def _next_batch(self, first: int, size: int, worth_sharing: int | None) -> tuple[int, tuple[int, ...]]:
        """Return how many strains the batch that begins with number ``first`` has, and the genes that they share."""
        size = min(size, self.stop - first)
        if worth_sharing is None or self.activities:  # Weakened genes are not shared.
            return size, ()
        positions = self._positions(np.array([first]))[0].tolist()
        count = len(self.genes)
        for length in range(self.size - 1, 0, -1):
            if math.comb(count - 1 - positions[length - 1], self.size - length) >= worth_sharing:
                # Combinations behind the last one that begins with these genes.
                behind = sum(math.comb(count - 1 - p, self.size - i) for i, p in enumerate(positions[:length]))
                rest = min(self.stop, math.comb(count, self.size) - behind) - first
                # As few batches as may be, of about the same size.
                return math.ceil(rest / math.ceil(rest / size)), tuple(self.genes[p] for p in positions[:length])
        return size, ()


@functools.lru_cache(maxsize=8)
def _binomials(count: int, size: int) -> NDArray[np.int64]:
    """Return C(x, size) for x from 0, [count + 1], which never decreases."""
    return np.array([math.comb(x, size) for x in range(count + 1)], np.int64)


def every_gene(vocabulary: Vocabulary) -> list[int]:
    """Return the indices of all genes, without names of the metabolic model that are no genes."""
    no_genes = [*filter(is_no_gene, vocabulary)]
    if no_genes:
        log.info("left out, because these names of the metabolic model are no genes: %s", listing(no_genes))
    return [number for number, name in enumerate(vocabulary) if name not in no_genes]


def read_genes(path: Path, vocabulary: Vocabulary) -> list[int]:
    """Read gene names, one a line, and return their indices in order; blank lines and text after ``#`` are left out.

    Raises:
        GenotypeError: the file is missing or no text, or names are unknown or listed twice; all of these are counted.
    """
    where, form = f"gene list '{path}'", "a text file, one gene name a line"
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (FileNotFoundError, IsADirectoryError) as error:
        raise GenotypeError(f"{where} not found", expected=form) from error
    except UnicodeDecodeError as error:
        raise GenotypeError(f"{where} is not a text file", got=error, expected=f"{form}, in UTF-8") from error
    names = [name for line in lines if (name := line.partition("#")[0].strip())]
    if strange := [name for name in names if CONTROL.search(name)]:
        raise GenotypeError(f"{where}: a name has a control character", got=ascii(strange[0]), expected=form)
    names = [vocabulary.find(name) for name in names]
    unknown = [name for name in dict.fromkeys(names) if name not in vocabulary]
    if unknown:
        raise GenotypeError(
            f"{where}: the model does not know {len(unknown):,} of {len(names):,} genes",
            got=listing([unknown[0] + vocabulary.suggestion(unknown[0]), *unknown[1:]]),
            do="mend or remove them; `dglcell graph describe RUN --names` lists the genes of the model",
        )
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise GenotypeError(f"{where}: genes are listed twice", got=listing(twice), do="list each once")
    return [vocabulary.index(name) for name in names]
