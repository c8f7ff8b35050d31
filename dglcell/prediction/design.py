"""Define designs: all combinations of some genes. Strains are made from their numbers, never all at once."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.data.strains import Strains
from dglcell.data.table import activity_of, sets_at
from dglcell.errors import GenotypeError, listing
from dglcell.files.atomic import canonical_hash, named
from dglcell.graph.model_files import is_no_gene
from dglcell.graph.tables import read_list
from dglcell.graph.vocabulary import Vocabulary
from dglcell.prediction import KINDS
from dglcell.prediction.columns import Completion, added_column

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
        complete: Completion | None = None,
    ) -> Design:
        """Make the design of all combinations of ``genes``, or of ``limit`` of them from number ``start``."""
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
        return cls(tuple(genes), size, start, stop, left, background, complete)

    def __len__(self) -> int:
        return self.stop - self.start

    def describe(self) -> dict[str, Any]:
        """Describe in plain containers which strains these are, given the cell graph, and in which order."""
        sha256 = canonical_hash([self.genes, self.size, self.start, self.stop])
        about = {"genes": len(self.genes), "deletions": self.size, "start": self.start, "stop": self.stop}
        # Designs without these are described as they always were, so that their outputs stay complete.
        more: dict[str, Any] = {"activities": list(self.activities)} if self.activities else {}
        if self._covariates:
            more["covariates"] = self._covariates
        return {"design_sha256": sha256, **about, **more}

    def genes_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the [n, K] gene indices of the strains with these numbers, counted from 0 over the whole design."""
        count, numbers = len(self.genes), numbers // max(1, len(self.activities)) ** self.size
        # The lexicographic order of sets is the reverse of the combinatorial number system with genes from the last.
        mirrored = sets_at(math.comb(count, self.size) - 1 - numbers, count, self.size)
        return np.asarray(self.genes, np.int64)[count - 1 - mirrored[:, ::-1]]

    def strains(self, first: int, last: int, names: tuple[str, ...]) -> Strains:
        """Return the strains from ``first`` to before ``last``, counted from the design's own first."""
        numbers = np.arange(self.start + first, self.start + last)
        left = None
        if self.activities:
            places = len(self.activities) ** np.arange(self.size - 1, -1, -1)
            digits = numbers[:, None] // places % len(self.activities)
            left = np.asarray(self.activities, np.float32)[digits].reshape(-1)
        found = {} if self.background is None else self.background.columns
        columns = {column: np.repeat(values, len(numbers), axis=0) for column, values in found.items()}
        offsets = np.arange(len(numbers) + 1) * self.size
        made = Strains(names, self.genes_of(numbers).reshape(-1), offsets, columns, activities=left)
        return made if self.complete is None else self.complete(made)

    def wild_type(self, names: tuple[str, ...]) -> Strains:
        """Return the wild type with the covariates of the strains; ``names`` are those of the cell graph's genes."""
        one = self.background or Strains.from_indices(names, [()])
        return one if self.complete is None else self.complete(one)

    def columns(self, strains: Strains) -> dict[str, Any]:
        """Return the columns ``gene_1`` …, dictionary-encoded, ``activity_1`` … and ``covariate_<name>`` of strains."""
        by_gene = strains.targets.reshape(-1, self.size).T
        found = {f"gene_{k + 1}": named(column, strains.names) for k, column in enumerate(by_gene)}
        if self.activities:
            left = strains.left().reshape(-1, self.size).T
            found |= {f"activity_{k + 1}": column for k, column in enumerate(left)}
        for name, value in self._covariates.items():
            same = np.zeros(len(strains), np.int64)
            column = named(same, (value,)) if isinstance(value, str) else np.full(len(same), value, np.float32)
            found[added_column(name)] = column
        return found

    @property
    def _covariates(self) -> dict[str, str | float]:
        one = self.background
        return {} if one is None else {name: one.shown(name).tolist()[0] for name in one.covariates}


def every_gene(vocabulary: Vocabulary) -> list[int]:
    """Return the indices of all genes, without names of the metabolic model that are no genes."""
    no_genes = [*filter(is_no_gene, vocabulary)]
    if no_genes:
        log.info("left out, because these names of the metabolic model are no genes: %s", listing(no_genes))
    return [number for number, name in enumerate(vocabulary) if name not in no_genes]


def read_genes(path: Path, vocabulary: Vocabulary) -> list[int]:
    """Read a list of genes, and return their indices in order."""
    where = f"gene list '{path}'"
    if not path.exists() or path.is_dir():  # it may be a pipe
        raise GenotypeError(f"{where} not found", expected="a text file, one gene name a line")
    names = [vocabulary.find(name) for name in read_list(path).values()]
    unknown = [name for name in dict.fromkeys(names) if name not in vocabulary]
    if unknown:
        raise GenotypeError(
            f"{where}: the model does not know {len(unknown):,} of {len(names):,} genes",
            got=listing([unknown[0] + vocabulary.suggestion(unknown[0]), *unknown[1:]]),
            do="mend or remove them; in Python, `dglcell.load_cell(RUN).genes.names` lists the genes of the model",
        )
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise GenotypeError(f"{where}: genes are listed twice", got=listing(twice), do="list each once")
    return [vocabulary.index(name) for name in names]
