"""Define the record of strains: targets and columns, the same from a source to a model's batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dglcell.checks import AN_ACTIVITY, no_activities
from dglcell.data.columns import (
    ACTIVITIES,
    BLOCKED,
    COMPUTED,
    COUNTS,
    COVARIATE,
    MEASURED,
    PHENOTYPE,
    ROW,
    SEEN,
    STORED,
    TARGETS,
    Array,
    Column,
    Keys,
    Provenance,
    check_names,
    columns_of,
    content_hash,
    covariate_columns,
    gene_keys,
    hashes,
    number_keys,
    shuffled,
    stored_numbers,
    target_dtype,
    translated,
)
from dglcell.data.table import (
    CLASSIFICATION,
    REGRESSION,
    IssuesError,
    Rows,
    activity_columns,
    gene_columns,
    numbers_of,
    read_changes,
)
from dglcell.errors import DataError, GenotypeError, did_you_mean, listing
from dglcell.graph.vocabulary import Vocabulary

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from scipy import sparse

    from dglcell.graph.cell_graph import CellGraph
    from dglcell.perturbation.genotype import GenotypeBatch


@dataclass(frozen=True, eq=False)
class Strains:
    """Hold S strains: what each one changes, and what is known of it.

    Targets of a strain keep the order of the source: query genes first, array gene last. Arrays are numpy's; `to`
    gives the same record in tensors. Covariates of strains, such as a growth medium or a temperature, are columns.

    >>> import dglcell
    >>> len(dglcell.Strains.from_names([["b0008", "b2464"], ["b0727"]]))
    2

    Raises:
        DataError: the columns do not fit together, or a name cannot be used.
    """

    names: tuple[str, ...]  #: distinct names of the nodes that targets are indices of, any order
    #: [P] integers, indices into ``names``, strain by strain; in a batch there may be fillers of −1 behind them
    targets: Array
    offsets: Array  #: [S + 1] int64; strain s changes ``targets[offsets[s]:offsets[s + 1]]``
    columns: Mapping[Column, Array] = field(default_factory=dict)  #: what a column is → [S] its values
    units: Mapping[str, str] = field(default_factory=dict)  #: phenotype → unit (``""`` if dimensionless)
    provenance: Provenance = field(default_factory=lambda: Provenance("python"))  #: where the strains came from
    #: [P] float32, what is left of each target: 0 of a deleted one, 0.3 after a knock-down, 1 in the wild type, more
    #: where it is overexpressed. None where all are deleted.
    activities: Array | None = None

    def __post_init__(self) -> None:
        check_names("gene", tuple(self.names))
        check_names("phenotype", tuple(column.name for column in self.columns if column.kind in MEASURED))
        targets, offsets = self.targets, self.offsets
        if targets.dtype.kind not in "iu" or offsets.dtype.kind not in "iu":
            raise DataError("strains: targets or offsets are no whole numbers")
        if len(self) < 0 or offsets[0] != 0 or offsets[-1] != len(targets) or (offsets[1:] < offsets[:-1]).any():
            raise DataError("strains: offsets do not cover the targets", expected=f"0 … {len(targets)}, ascending")
        if len(targets) and not 0 <= (least := targets.min()) <= (most := targets.max()) < len(self.names):
            got, expected = f"{least} … {most}", f"0 … {len(self.names) - 1}"
            raise DataError("strains: targets outside their names", got=got, expected=expected)
        # A column without a name is one that models see, and may be wide.
        sizes = [(f"column '{a.name}'", x.shape if a.name else x.shape[:1], len(self)) for a, x in self.columns.items()]
        for what, size, wanted in [*sizes, ("activities", self.left().shape, len(targets))]:
            if size != (wanted,):
                raise DataError(f"strains: {what} has the wrong length", got=", ".join(map(str, size)), expected=wanted)
        for place in np.flatnonzero(no_activities(self.left()))[:1]:
            what = f"strain {self.owners[place]}: the activity of gene '{self.names[targets[place]]}' is no amount"
            do = "leave a gene out that the strain does not change"
            raise GenotypeError(what, got=float(self.left()[place]), expected=AN_ACTIVITY, do=do)

    @classmethod
    def from_indices(cls, names: tuple[str, ...], strains: Sequence[Sequence[int]], **of: Any) -> Self:
        """Make strains from lists of targets; ``of`` are other fields."""
        targets = np.fromiter(itertools.chain.from_iterable(strains), np.int32)
        return cls(names, targets, np.cumsum([0, *map(len, strains)], dtype=np.int64), **of)

    @classmethod
    def from_names(
        cls,
        strains: Iterable[Sequence[str] | Mapping[str, float]],
        cell: CellGraph | None = None,
        *,
        phenotypes: Mapping[str, ArrayLike] | None = None,
        covariates: Mapping[str, ArrayLike] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> Self:
        """Make strains from lists of gene names.

        >>> from dglcell import Strains
        >>> strains = Strains.from_names([["b0008", "b2464"], ["b0727"]], phenotypes={"fitness": [0.1, 0.9]})
        >>> strains.num_deletions.tolist()
        [2, 1]
        >>> Strains.from_names([{"b0008": 0.3}, ["b0727"]]).activities.tolist()
        [0.30000001192092896, 0.0]

        Args:
            strains: the deleted genes of each; or gene → activity, as in ``activities`` of the record.
            cell: whose genes they have to be, under any name that it knows; not checked where None.
            phenotypes: name → a number for each strain, NaN where not measured.
            covariates: name → a number or a text for each strain; the one of the name ``medium`` is its growth medium.
            units: phenotype → unit.

        Raises:
            GenotypeError: the cell lacks a gene, or an activity is no amount.
            DataError: a phenotype or covariate does not fit, or is infinite or missing.
        """
        listed = list(strains)
        genotypes = list_genotypes(listed)
        activities, joined = None, itertools.chain.from_iterable
        if any(isinstance(strain, Mapping) for strain in listed):
            left = (strain.values() if isinstance(strain, Mapping) else [0.0] * len(strain) for strain in listed)
            activities = np.fromiter(joined(left), np.float32)
        if cell is not None:
            genotypes = [[cell.genes.find(gene) for gene in genes] for genes in genotypes]
            for number, gene in ((i, gene) for i, of in enumerate(genotypes) for gene in of if gene not in cell.genes):
                raise GenotypeError(f"strain {number}: unknown gene '{gene}'{cell.genes.suggestion(gene)}")
        columns = {**_label_columns(phenotypes or {}, phenotypes or ()), **covariate_columns(covariates or {})}
        names, targets = np.unique(np.array([*joined(genotypes)], dtype=object), return_inverse=True)
        offsets = np.cumsum([0, *map(len, genotypes)], dtype=np.int64)
        return cls(tuple(names), targets.astype(np.int32), offsets, columns, dict(units or {}), activities=activities)

    @classmethod
    def from_dataframe(
        cls,
        frame: pd.DataFrame,
        cell: CellGraph | None = None,
        *,
        genes: Sequence[str] | None = None,
        activities: Sequence[str] | None = None,
        phenotypes: Sequence[str] = (),
        covariates: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
    ) -> Self:
        """Make strains from the rows of a DataFrame.

        >>> import pandas as pd
        >>> from dglcell import Strains
        >>> frame = pd.DataFrame({"query": ["b0008"], "array": ["b2464"], "fitness": [0.1]})
        >>> Strains.from_dataframe(frame, genes=["query", "array"], phenotypes=["fitness"]).names
        ('b0008', 'b2464')

        Args:
            frame: a row per strain.
            cell: whose genes they have to be; not checked where None.
            genes: its gene columns; one column may hold several genes, separated by ``;``. The columns ``gene_1,
                gene_2, …`` or ``genes`` where None. If the list is empty, no row changes a gene.
            activities: the columns of their activities, in the same order; ``activity_1, …`` or ``activities``, if
                there are any, where None. An activity may also stand behind its gene, ``b0008:0.3``.
            phenotypes: its columns of numbers.
            covariates: its columns of covariates.
            units: phenotype → unit.

        Raises:
            DataError: a column is not there, or holds no numbers.
            GenotypeError: there is no gene column, the cell lacks a gene, or an activity is no amount.
        """
        header, place = [str(name) for name in frame.columns], "the DataFrame"
        chosen = gene_columns(header, place) if genes is None else genes
        amounts = activity_columns(header, chosen, place) if activities is None else activities
        for name in (*phenotypes, *covariates, *chosen, *amounts):
            if name not in header:
                what, do = f"{place} has no column '{name}'", did_you_mean(name, header)
                raise DataError(what, expected=f"among {listing(header)}", do=do)
        columns = _label_columns(frame, phenotypes)
        columns |= covariate_columns({name: frame[name].to_numpy() for name in covariates})
        rows = Rows.of_frame(frame, [*chosen, *amounts])
        changes = read_changes(rows, chosen, amounts, known=None if cell is None else cell.genes, may_be_empty=True)
        if issues := [*changes.issues, *([] if cell is None else changes.unknown_issues(cell.genes))]:
            raise IssuesError(rows, issues)
        return cls(*changes.targets, columns, dict(units or {}), activities=changes.activities)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def with_(self, **changed: Any) -> Self:
        """Return the record with other fields, which fit together and are not checked again."""
        made = object.__new__(type(self))
        made.__dict__.update({part.name: getattr(self, part.name) for part in fields(self)} | changed)
        return made

    # Columns.

    def of_kind(self, kind: str) -> dict[str, Array]:
        """Return the columns of a kind: name → [S] values."""
        return {column.name: values for column, values in self.columns.items() if column.kind == kind}

    @property
    def phenotypes(self) -> dict[str, Array]:
        """Return the phenotypes: name → [S] float32, NaN where it was not measured."""
        return self.of_kind(PHENOTYPE)

    @property
    def rows(self) -> Array:
        """Return the numbers of the strains in their store, [S] int64."""
        return self.columns[Column(ROW)]

    @cached_property
    def labels(self) -> Array:
        """Return the phenotypes side by side, [S, T]."""
        columns = list(self.phenotypes.values())
        if len(columns) == 1:  # is a matrix as it is
            return columns[0][:, None]
        if isinstance(columns[0], np.ndarray):
            return np.stack(columns, axis=1)
        import torch

        return torch.stack(columns, dim=1)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Return what each phenotype asks for: classification if all its labels are 0 or 1, else regression."""
        binary = [bool(((of == 0) | (of == 1) | (of != of)).all()) for of in self.phenotypes.values()]
        return tuple(CLASSIFICATION if yes else REGRESSION for yes in binary)

    # Targets.

    @property
    def genotypes(self) -> list[list[str]]:
        """Return the names of the deleted genes of each strain."""
        genes = np.array(self.names, dtype=object)[self.targets]
        return [part.tolist() for part in np.split(genes, self.offsets[1:-1])] if len(self) else []

    @property
    def changes(self) -> list[list[str]] | list[dict[str, float]]:
        """Return the changes of each strain as `from_names` takes them: a list of deleted genes, or gene → activity."""
        if self.activities is None:
            return self.genotypes
        left = np.split(self.activities, self.offsets[1:-1])
        return [dict(zip(genes, of.tolist(), strict=True)) for genes, of in zip(self.genotypes, left, strict=False)]

    @property
    def num_deletions(self) -> Array:
        """Return the number of deleted genes of each strain, [S]."""
        return self.offsets[1:] - self.offsets[:-1]

    @cached_property
    def max_deletions(self) -> int:
        """Return the most deletions of any strain, 0 without strains; of a batch an upper bound that the host knows."""
        return int(self.num_deletions.max()) if len(self) else 0

    @cached_property
    def design(self) -> sparse.csr_matrix:
        """Return a sparse matrix, [S, N], that says how much of the gene the strain lacks, 1 where it is deleted."""
        from scipy import sparse

        shape = (len(self), len(self.names))
        return sparse.csr_matrix((self.lost, self.targets.astype(np.int64), self.offsets), shape=shape)

    @property
    def lost(self) -> NDArray[np.float64]:
        """Return how much of each target a strain lacks, [P], 1 minus its activity."""
        return 1.0 - self.left().astype(np.float64)

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """Return the strain of each target, [P]."""
        return np.repeat(np.arange(len(self)), self.num_deletions)

    def total(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the sum of ``values``, [P], over the targets of each strain, [S]; of flags, how many are set."""
        if values.dtype.kind == "f":
            return np.bincount(self.owners, values, len(self)).astype(np.float64)
        totals = np.zeros(len(values) + 1, values.dtype if values.dtype.kind == "u" else np.int64)
        np.cumsum(values, out=totals[1:])
        return np.diff(totals[self.offsets])

    @property
    def gene_set_keys(self) -> Keys:
        """Return a key of each strain's gene set, [S], that does not depend on the order of its genes.

        A sum of hashes modulo 2^64: in 20 million strains two sets share one with a chance of about 1e-5.
        """
        return self.total(gene_keys(self.names)[self.targets])

    @property
    def strain_keys(self) -> Keys:
        """Return a key of each strain, [S], equal where genes, activities and covariates are; see `gene_set_keys`."""
        keys = self.gene_set_keys
        if self.activities is not None:
            of_targets = gene_keys(self.names)[self.targets] ^ number_keys(self.activities)
            keys = keys + self.total(shuffled(of_targets, 0))
        for name, values in self.of_kind(COVARIATE).items():
            keys = shuffled(keys ^ gene_keys([name])[0], 0) + number_keys(values)
        return keys

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return every pair of genes of every strain: the strains, and the two genes."""
        found = [np.zeros((3, 0), np.int64)]
        for number in np.unique(self.num_deletions).tolist():
            rows = np.flatnonzero(self.num_deletions == number)
            genes = self.targets[self.offsets[rows][:, None] + np.arange(number)].astype(np.int64)
            found += [np.stack([rows, genes[:, i], genes[:, j]]) for i, j in itertools.combinations(range(number), 2)]
        strains, first, second = np.concatenate(found, axis=1)
        return strains, first, second

    @cached_property
    def perturbations(self) -> GenotypeBatch:
        """Return what the strains do to a cell graph, as integers; the record has to be in tensors."""
        from dglcell.perturbation.genotype import GenotypeBatch

        seen, blocked = self.columns.get(Column(SEEN)), self.columns.get(Column(BLOCKED))
        return GenotypeBatch(
            self.targets.long(), self.offsets, self.max_deletions, self.activities, covariates=seen, blocked=blocked
        )

    # Covariates.

    @property
    def covariates(self) -> dict[str, tuple[str, ...]]:
        """Return the covariates: name → categories, none where values are numbers."""
        return {column.name: column.categories for column in self.columns if column.kind == COVARIATE}

    @property
    def computed(self) -> tuple[str, ...]:
        """Return the covariates that a simulator has computed from the strains: they make no strain another one."""
        made = self.provenance.parameters.get(COMPUTED, {})
        return tuple(name for name in self.covariates if name in made)

    def shown(self, covariate: str) -> NDArray[Any]:
        """Return the values of a covariate, [S]: numbers, or texts."""
        categories, values = self.covariates[covariate], self.of_kind(COVARIATE)[covariate]
        return np.array(categories)[values.astype(np.int64)] if categories else values

    def with_covariates(self, seen: Mapping[str, Sequence[str]]) -> Self:
        """Return the record with a column ``SEEN``, the covariates that a model sees: name → categories."""
        if not seen:
            return self
        own, values_of, found = self.covariates, self.of_kind(COVARIATE), []
        for name, categories in seen.items():
            if name not in own or bool(categories) != bool(own[name]):
                what = f"strains lack the covariate '{name}', which the model sees"
                of = f"texts, each {listing(categories)}" if categories else "numbers"
                got, expected = listing(own) or "strains without covariates", f"a column '{name}' of {of}"
                raise DataError(what, got=got, expected=expected)
            values = values_of[name]
            if categories:
                used = {own[name][i] for i in np.unique(values).astype(int) if i >= 0}
                if unknown := sorted(used - {*categories}):
                    what = f"covariate '{name}' has a value that the model was not made for"
                    raise DataError(what, got=listing(unknown), expected=f"among {listing(categories)}")
                # The value −1 means an unknown category, and stays −1.
                codes = np.array([*(categories.index(c) if c in categories else -1 for c in own[name]), -1])
                values = codes[values.astype(np.int64)]
            found.append(values)
        stacked = np.stack(found, axis=1).astype(np.float32)
        return self.with_(columns={**self.columns, Column(SEEN): stacked})

    # Other strains of the same form.

    def slice(self, start: int, stop: int) -> Self:
        """Return strains ``start`` to ``stop``, without copying."""
        first, last = self.offsets[start], self.offsets[stop]
        columns = {column: values[start:stop] for column, values in self.columns.items()}
        return self._of(slice(first, last), self.offsets[start : stop + 1] - first, columns)

    def _of(self, places: Any, offsets: Array, columns: Mapping[Column, Array], targets: Array | None = None) -> Self:
        """Return strains of the targets at ``places``, or of these ``targets``, which have the activities there."""
        activities = None if self.activities is None else self.activities[places]
        targets = self.targets[places] if targets is None else targets
        return self.with_(targets=targets, activities=activities, offsets=offsets, columns=columns)

    def take(self, rows: Array, size: int | None = None) -> Self:
        """Return the strains at ``rows``, [B] integers on the same device, in that order.

        Tensors are gathered without synchronisation if the host knows ``size``: P, their deletions in total, or more,
        which are filled up.
        """
        counts = self.offsets[rows + 1] - self.offsets[rows]
        columns = {column: values[rows] for column, values in self.columns.items()}
        if isinstance(self.targets, np.ndarray):
            offsets: Array = np.append(0, np.cumsum(counts)).astype(np.int64)
            places = np.repeat(self.offsets[rows] - offsets[:-1], counts) + np.arange(offsets[-1])
            return self._of(places, offsets, columns)
        import torch

        from dglcell.perturbation.targets import strains_of

        offsets = torch.cat([counts.new_zeros(1), torch.cumsum(counts, 0)])
        size = int(offsets[-1]) if size is None else size
        numbers, shift = torch.arange(size, device=self.targets.device), self.offsets[rows] - offsets[:-1]
        places = (numbers + shift[strains_of(offsets, size)]).clamp(max=len(self.targets) - 1)
        targets = torch.where(numbers < offsets[-1], self.targets[places].long(), -1)
        made = self._of(places, offsets, columns, targets)
        made.__dict__["max_deletions"] = self.max_deletions
        return made

    def with_targets(self, chosen: NDArray[np.bool_]) -> Self:
        """Return the strains with the targets alone for which ``chosen``, [P], is true; in numpy."""
        return self._of(chosen, np.append(0, np.cumsum(chosen))[self.offsets], self.columns)

    def left(self) -> NDArray[np.float32]:
        """Return what is left of each target, [P], 0 where all are deleted."""
        return np.zeros(len(self.targets), np.float32) if self.activities is None else self.activities

    def map(self, function: Callable[[Array], Array]) -> Self:
        """Return the record with ``function`` applied to each array; it must keep the array's length."""
        made = self.with_(
            targets=function(self.targets),
            offsets=function(self.offsets),
            columns={column: function(values) for column, values in self.columns.items()},
            activities=None if self.activities is None else function(self.activities),
        )
        made.__dict__["max_deletions"] = self.max_deletions
        return made

    def to(self, device: torch.device | str) -> Self:
        """Return the record in tensors on ``device``."""
        import torch

        return self.map(lambda values: torch.as_tensor(values).to(device))

    def numpy(self) -> Self:
        """Return the record in arrays; tensors on the host are not copied."""
        return self.map(np.asarray)

    @property
    def device(self) -> torch.device:
        """Return the device of the tensors."""
        return self.targets.device

    # Hashes and other forms.

    def stored(self) -> dict[tuple[str, ...], NDArray[Any]]:
        """Return columns by their labels as a store keeps them."""
        vocabulary = Vocabulary.of(self.names)
        targets = translated(self.targets, vocabulary.indices(self.names))
        columns = [column for kind in STORED for column in self.columns if column.kind == kind]
        return {
            COUNTS: self.num_deletions.astype(np.uint8),
            TARGETS: targets.astype(target_dtype(len(vocabulary)), copy=False),
            **({} if self.activities is None else {ACTIVITIES: self.activities.astype("<f4", copy=False)}),
            **{column.label: stored_numbers(self.columns[column]) for column in columns},
        }

    @property
    def sha256(self) -> str:
        """Return the hash of the content, that of these strains' store, whatever the order of ``names``."""
        units = {name: self.units.get(name, "") for name in self.phenotypes}
        return content_hash(Vocabulary.of(self.names).sha256, units, hashes(self.stored()))


def list_genotypes(strains: Iterable[Iterable[str]]) -> list[list[str]]:
    """Return the deleted genes of each strain, as lists."""
    genotypes = list(strains)
    for strain in genotypes:
        if isinstance(strain, str) or not isinstance(strain, Iterable):
            what, do = "a strain is a list of genes", "give a list of lists, or a DataFrame"
            raise GenotypeError(what, got=repr(strain), expected="names, e.g. ['talB', 'gltA']", do=do)
    return [[str(gene) for gene in strain] for strain in genotypes]


def _label_columns(columns: Any, phenotypes: Iterable[str]) -> dict[Column, NDArray[np.float32]]:
    labels = numbers_of(columns, phenotypes)
    for name, values in labels.items():
        for number in np.flatnonzero(np.isinf(values))[:1]:
            raise DataError(f"strain {number}: {name} is infinite", expected="a number, or NaN if not measured")
    return columns_of(phenotype=labels)
