"""Define the configuration of where an experiment's strains come from, and the base classes of a user's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dglcell.checks import LARGEST_INTEGER, LEAST_ACTIVITY, Rule, Seed, Workers, check_values, must, one_of, positive
from dglcell.data.columns import MEDIUM
from dglcell.errors import ConfigError, listing
from dglcell.graph.metabolism import MediaChanges, check_media

if TYPE_CHECKING:
    from dglcell.data.strains import Strains

DECIMALS = (".", ",")
Missing = Annotated[str, one_of("refuse", "drop")]
Replicates = Annotated[str, one_of("mean", "refuse")]
Decimal = Annotated[str, one_of(*DECIMALS)]


@dataclass
class GuideConfig:
    """Configure the features of CRISPRi guides, which become covariates of strains.

    A covariate ``site`` says where a guide binds, by the names of columns and the sequence there; ``mismatch_20`` to
    ``mismatch_1`` say where the guide does not match it, by the distance to the PAM. Guides of one site are one guide
    with mismatches, so that the most frequent base at each position is taken for that of the site; where there are few
    guides, a mismatch cannot be told. A table to predict is read with the sites of the training.
    """

    #: column of sequences without the PAM, from the end that is far from it; empty where there is no guide
    sequence: str = ""
    site: list[str] = field(default_factory=list)  # columns that together name the place that a guide binds
    #: column of numbers that say how far from the start of the gene this is, which becomes the covariate ``distance``;
    #: none if empty. Cells of guides that bind no gene are empty.
    distance: str = ""

    @property
    def columns(self) -> list[str]:
        """Return all columns."""
        return [self.sequence, *([self.distance] if self.distance else []), *self.site]


@dataclass
class CsvConfig:
    """Configure a table of strains, one per row, with a header; it may be plain or gzipped."""

    path: str = ""  #: the file; a relative path is also searched in the raw folder
    #: the columns of deleted genes, with query genes first and the array gene last; an empty cell deletes nothing. A
    #: single column may contain several genes, separated by ``;``. None are needed where strains have covariates.
    genes: list[str] = field(default_factory=list)
    phenotypes: dict[str, str] = field(default_factory=dict)  #: phenotype name → column
    p_values: dict[str, str] = field(default_factory=dict)  #: phenotype name → column
    sds: dict[str, str] = field(default_factory=dict)  #: phenotype name → column of standard deviations over replicates
    units: dict[str, str] = field(default_factory=dict)  #: phenotype name → unit
    #: what maps other names to systematic ones: a gene set of the catalogue such as ``sgd_names``, a metabolic model
    #: whose genes have names, or a table with columns Strain, Orf, Common, Allele (or ``systematic`` and others). Case
    #: and blanks in names do not count where there is only one such gene.
    aliases: str | None = None
    where: dict[str, str] = field(default_factory=dict)  #: column → value; rows with other values are left out
    #: names that do not count as deleted, such as a marker locus or controls (``control_*``); a row of these alone is
    #: the wild type
    ignore_genes: list[str] = field(default_factory=list)
    missing: Missing = "refuse"  #: what to do with rows without any phenotype: ``refuse`` or ``drop``
    #: what to do with rows of the same genes: ``mean`` (with their standard deviation), or ``refuse``
    replicates: Replicates = "mean"
    #: cells that mean "not measured"; empty cells, NA, N/A and NaN always do
    na_values: list[str] = field(default_factory=lambda: ["", "NA", "NaN", "nan"])
    decimal: Decimal = "."  #: a point or a comma, the mark in numbers such as 0,85
    #: the columns of what is left of each of ``genes``, in the same order: 0 or empty for a deletion, 0.3 for a
    #: knock-down. It is left out where activities are written behind genes, ``b0008:0.3``, or all are deletions.
    activities: list[str] = field(default_factory=list)
    #: covariate → column of numbers or of texts, such as the temperature or an allele; ``medium`` is the growth medium.
    #: Every strain has all covariates.
    covariates: dict[str, str] = field(default_factory=dict)
    #: where the table has guides of CRISPRi, whose mismatches become covariates (`GuideConfig`)
    guides: GuideConfig | None = None
    #: medium → phenotype → column, in place of ``phenotypes``, where each medium has columns. A row is then a strain in
    #: every medium that something is measured in.
    by_medium: dict[str, dict[str, str]] = field(default_factory=dict)
    #: medium → phenotype → column of standard deviations, likewise
    sds_by_medium: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def has_covariates(self) -> bool:
        """Return whether strains have covariates, so that they need not change a gene."""
        return bool(self.covariates or self.by_medium or self.guides)

    def validate(self, where: str = "data.source.csv") -> None:
        """Check the keys against each other."""
        check_values(self, where)
        for key, is_there, example in (
            ("path", self.path, "strains.csv"),
            ("genes", self.genes or self.has_covariates, "[gene_1, gene_2]"),
            ("phenotypes", self.phenotypes or self.by_medium, "{fitness: fitness}"),
        ):
            if not is_there:
                raise ConfigError(f"the CSV source needs `{where}.{key}`", do=f"set e.g. `{where}.{key}: {example}`")
        if self.activities and len(self.activities) != len(self.genes):
            got, expected = listing(self.activities), f"a column for each of {listing(self.genes)}"
            raise ConfigError(f"`{where}.activities` does not fit `genes` beside it", got=got, expected=expected)
        if self.guides is not None and not (self.guides.sequence and self.guides.site):
            do = f"set e.g. `{where}.guides: {{sequence: sequence, site: [gene, series]}}`"
            raise ConfigError(f"`{where}.guides` needs a column of sequences, and columns that name the site", do=do)
        if self.by_medium and (self.phenotypes or self.sds or self.p_values or MEDIUM in self.covariates):
            what = f"`{where}.by_medium` stands in place of `phenotypes`, `sds`, `p_values` and `covariates.{MEDIUM}`"
            raise ConfigError(what, do="leave these out, or leave `by_medium` out")
        measured = {*self.phenotypes, *(name for columns in self.by_medium.values() for name in columns)}
        of_media = {name for columns in self.sds_by_medium.values() for name in columns}
        keys = {"p_values": self.p_values, "sds": self.sds, "units": self.units, "sds_by_medium": of_media}
        for key, columns in keys.items():
            if stray := sorted(set(columns) - measured):
                what = f"`{where}.{key}` names phenotypes that `phenotypes` beside it does not"
                raise ConfigError(what, got=listing(stray), expected=listing(sorted(measured)))


Tolerance = Annotated[float, positive(), must(lambda number: number < 1, "is too large", "less than 1")]


def check_screened(key: str, activities: list[float]) -> None:
    """Refuse activities that flux balance analysis has no bounds for, those that are listed twice, and too many."""
    if len(activities) > 100:
        raise ConfigError(f"`{key}` lists too many", got=len(activities), expected="at most 100")
    for number, activity in enumerate(activities):
        if activity != 0 and not LEAST_ACTIVITY <= activity <= 1:
            expected = f"0 for a deletion, or {LEAST_ACTIVITY:g} to 1, the wild type"
            do = "leave overexpression out: flux balance analysis does not bound it" if activity > 1 else None
            what = f"`{key}` holds a number that is no activity of a screen"
            raise ConfigError(what, got=activity, expected=expected, do=do)
        if activity in activities[:number]:
            raise ConfigError(f"`{key}` lists {activity:g} twice", got=activities, do="list each once")


Amount = Annotated[
    str,
    must(
        lambda s: s in ("all", "none") or (s.isdecimal() and len(s) < 12 and 0 < int(s) <= LARGEST_INTEGER),
        "is not an amount",
        f"all, none or a positive number, at most {LARGEST_INTEGER}",
    ),
]


@dataclass
class InSilicoConfig:
    """Configure an in-silico screen."""

    model: str = "textbook"  #: a model that cobra includes (``textbook``, ``iJO1366``) or a model file
    singles: bool = True  #: include the single deletion of every gene
    pairs: Amount = "all"  #: ``all``, ``none`` or a number to sample
    triples: Amount = "all"  #: ``all``, ``none`` or a number to sample
    seed: Seed = 0  #: seed of every random choice
    tolerance: Tolerance = 1e-9  #: tolerance of the solver; yeast-GEM needs 1e-9
    #: number of processes; 0: one for each CPU. The result does not depend on it.
    processes: Workers = 0
    #: every single gene is screened at each of these activities from 0, the deletion, to 1, the wild type, and every
    #: gene of a pair or triple at one that is drawn from them; empty: deletions only
    activities: Annotated[list[float], Rule(check_screened)] = field(default_factory=list)
    #: every strain, and the wild type, grows in each of these media; empty: in the model's own only. Names of exchange
    #: reactions lead to their largest uptake in mmol/gDW/h; the others are as in the model's own medium.
    media: MediaChanges = field(default_factory=dict)

    def validate(self) -> None:
        """Check the keys against each other."""
        check_values(self, "data.source.insilico")
        if not self.singles and self.pairs == self.triples == "none":
            do = "set `data.source.insilico.singles: true` or give `pairs` or `triples`"
            raise ConfigError("the in-silico screen has no strains", expected="singles, pairs or triples", do=do)


# Configuration of the growth that is computed beside what was measured.


@dataclass
class FbaConfig:
    """Configure the growth rate that flux balance analysis computes for each strain, as a covariate of strains.

    The medium of a strain is the model's own, changed by ``base``, then by ``media``, then by ``uptakes``.
    """

    #: a model that cobra includes (``iJO1366``), one of the catalogue or a model file; null: `cell.model`
    model: str | None = None
    #: growth medium → exchange reaction → largest uptake in mmol/gDW/h; null: those of `cell.media`
    media: MediaChanges | None = None
    #: exchange reaction → largest uptake, for every strain, such as ``{EX_glc__D_e: 0}``
    base: dict[str, float] = field(default_factory=dict)
    #: covariate of numbers → exchange reaction → uptake that each unit of it adds, where strains' media are numbers
    uptakes: MediaChanges = field(default_factory=dict)
    #: name of the covariate
    name: Annotated[str, must(lambda name: bool(name.strip()), "is empty", "a name for the column")] = "fba_growth"
    tolerance: Tolerance = 1e-9  #: tolerance of the solver; yeast-GEM needs 1e-9
    #: number of processes; 0: one for each CPU. The result does not depend on it.
    processes: Workers = 0

    def validate(self) -> None:
        """Raise ConfigError if a value is wrong."""
        check_values(self, "data.fba")
        check_media("data.fba", {"base": self.base})


# Configuration of the published laboratory screens.


DIGENIC, TRIGENIC = "digenic", "trigenic"


@dataclass
class LaboratoryConfig:
    """Configure which rows of a laboratory screen are used."""

    #: column of the file → value; rows with other values are left out. Tables of crosses have ``array_type``.
    where: dict[str, str] = field(default_factory=dict)
    #: only ``digenic`` or ``trigenic`` rows; null: both
    kind: Annotated[str | None, one_of(None, DIGENIC, TRIGENIC)] = None
    #: leave out rows with an allele that is not a deletion (temperature-sensitive, DAmP, suppressor). A deletion strain
    #: that carries a mapped suppressor counts as a deletion.
    deletions_only: bool = False
    missing: Missing = "refuse"  #: what to do with rows without a phenotype: ``refuse`` or ``drop``

    @property
    def chosen(self) -> dict[str, str]:
        """Return column → value of the rows that are asked for."""
        return {**self.where, **({} if self.kind is None else {"kind": self.kind})}


# Classes of a user's own.


@dataclass
class SourceOptions:
    """A source derives its ``Config`` from this class, which says what `data.source.options` may contain."""

    def validate(self) -> None:
        """Check values and their combinations."""
        check_values(self, "data.source.options")


class _Own:
    """This is a class of the user's own, made with an instance of its ``Config``, which says what options there are."""

    Config: ClassVar[type[SourceOptions]] = SourceOptions

    def __init__(self, config: Any) -> None:
        self.config = config

    def files(self, raw: str | None) -> list[Path]:
        """Return the files that it reads."""
        return []


class Source(_Own, ABC):
    """A user derives a source of strains from this class, and names it by `data.source.name: MODULE:CLASS`.

    The store of a source is refused once the file of this class, or one of its ``files``, has changed.
    `data.source.options` are its options.
    """

    @abstractmethod
    def load(self, raw: str | None) -> Strains:
        """Read or compute all strains.

        Args:
            raw: folder of raw files, where one is set; see ``dglcell.files.atomic.find_raw``.
        """


@dataclass(frozen=True)
class Work:
    """Say where a simulator works."""

    raw: str | None = None  #: folder of raw files, where one is set; see ``dglcell.files.atomic.find_raw``


class Simulator(_Own, ABC):
    """A user derives from this class a covariate that is computed for strains, named in `data.computed`.

    It is computed once when a store is built, and for new strains when they are predicted. Models and baselines see it
    as they see any covariate.
    """

    @abstractmethod
    def compute(self, strains: Strains, work: Work) -> NDArray[np.float32]:
        """Compute a finite number for each strain, [S], which depends on nothing but the strain and ``config``."""


def shaping(options: Any) -> dict[str, Any]:
    """Return options as plain containers, without those that change no strain."""
    return {name: value for name, value in asdict(options).items() if name != "processes"}
