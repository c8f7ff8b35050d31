"""Find the strongest and the worst missed strains and genes of a run, and over-represented sets of genes."""

from __future__ import annotations

import csv
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dglcell.baselines.simple import AdditiveRidge
from dglcell.config.experiment import Config
from dglcell.config.read import parse_inputs
from dglcell.data.sources.csv_table import find_aliases
from dglcell.data.sources.faults import Written
from dglcell.data.sources.text_table import read_rows
from dglcell.data.strains import Strains
from dglcell.data.table import CLASSIFICATION
from dglcell.errors import DglcellError, count, listing
from dglcell.files.atomic import find_raw
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.gene_sets import GeneSets, gene_sets
from dglcell.graph.vocabulary import Vocabulary
from dglcell.report.page import Grid, number
from dglcell.report.run_files import PARTS, RunFiles, read_run_config
from dglcell.runs.directory import RunDirectory

log = logging.getLogger("dglcell")

SHOWN = 10
"""A table shows at most so many strains, genes and sets."""

MOST_PHENOTYPES = 3

SHARE = 0.1
"""Sets are examined among this share of the genes: those with the largest effects, or with the strains missed most."""

FEWEST, MOST = 5, 50
"""The number of these genes is between these limits."""

SMALLEST_SET = 3
FEWEST_GENES = 20
"""Sets can be over-represented among at least so many genes."""

LEVEL = 0.1
"""Sets are shown up to this false discovery rate."""

TIED = 1e-6
"""Values are told apart if they differ by more than this share of the largest."""

RIDGE = 1.0
"""Each gene is given so many strains without an effect, so that a gene of one strain does not come first by chance."""


@dataclass(frozen=True)
class GeneTable:
    """Hold a table about strains or genes.

    Attributes:
        grid: the numbers; None where there is nothing to show.
    """

    title: str
    note: str
    grid: Grid | None


@dataclass(frozen=True)
class GenesOfRun:
    """Hold cell graph and strains of a run, as far as they have names.

    Attributes:
        genes: names of the cell graph's genes.
        sets: sets of genes that the cell graph and its files name.
        strains: part → deleted genes of its strains, in the order of the predictions.
        own_names: systematic name → another name in the user's table.
    """

    genes: Vocabulary
    sets: Sequence[GeneSets] = ()
    strains: Mapping[str, list[tuple[str, ...]]] = field(default_factory=dict)
    own_names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: RunDirectory, parts: Sequence[str]) -> GenesOfRun:
        """Read a run directory; names and sets are left out where its cell graph is missing or damaged."""
        strains = {part: read_strains(directory, part) for part in parts}
        listed = Vocabulary.of(gene for found in strains.values() for genes in found for gene in genes)
        if not directory.cell.is_dir():
            return cls(listed, (), strains)
        try:
            cell = CellGraph.load(directory.cell)
            config = parse_inputs(read_run_config(directory), where=str(directory.config))
            sets = gene_sets(cell, config.cell, config.paths.raw)
            return cls(cell.genes, sets, strains, own_names(config, cell.genes))
        except DglcellError as error:
            log.warning("the report names no sets of genes: %s", error)
            return cls(listed, (), strains)

    def shown(self, gene: str) -> str:
        """Return the name in the user's table, or else the common name, with the systematic one beside it."""
        name = self.own_names.get(gene) or self.genes.standard(gene)
        return f"{name} ({gene})" if name and name != gene else gene

    def strain(self, genes: Sequence[str]) -> str:
        """Return the names of deleted genes."""
        return ", ".join(map(self.shown, genes)) or "none deleted"


def read_strains(directory: RunDirectory, part: str) -> list[tuple[str, ...]]:
    """Read the deleted genes of the strains in ``predictions_<part>.csv``, which has been read before."""
    with open(directory.predictions(part), newline="", encoding="utf-8") as file:
        return [tuple(line["genes"].split(";")) for line in csv.DictReader(file)]


def own_names(config: Config, genes: Vocabulary) -> dict[str, str]:
    """Return systematic name → the first other name that the user's table has for the gene.

    There are none where the table no longer exists.
    """
    source = config.data.source
    if source.name != "csv":
        return {}
    try:
        rows = read_rows(find_raw(source.csv.path, config.paths.raw), source.csv.separator)
        aliases, _ = find_aliases(source.csv.aliases, config.paths.raw)
        written = Written.of(rows, source.csv.genes, genes, aliases)
    except DglcellError as error:
        log.info("standard names of genes are used: %s", str(error).partition("\n")[0])
        return {}
    return {gene: name for name, gene in reversed(written.meant.items()) if name != gene}


def genes_tables(run: RunFiles) -> dict[str, list[GeneTable]]:
    """Return phenotype → tables of strains, genes and sets; none where no strain is tested.

    Args:
        run: a run with predictions of its test part, and of the validation part, if there are any.
    """
    parts = [part for part in PARTS if part in run.predictions]
    if "test" not in parts:
        return {}
    about, found = GenesOfRun.read(run.directory, parts), {}
    kinds = {row.phenotype: row.kind for row in run.rows}
    for phenotype in [*run.predictions["test"]][:MOST_PHENOTYPES]:
        found[phenotype] = [
            *_strain_tables(run, about, phenotype, is_class=kinds.get(phenotype) == CLASSIFICATION),
            *_gene_tables(run, about, phenotype),
        ]
    return {phenotype: tables for phenotype, tables in found.items() if tables}


def _strain_tables(run: RunFiles, about: GenesOfRun, phenotype: str, *, is_class: bool) -> Iterator[GeneTable]:
    """Make tables of the strongest predictions and the largest errors of the test part."""
    predictions = run.predictions["test"][phenotype]
    predicted, measured = (np.asarray(v, np.float64) for v in (predictions.predicted, predictions.measured))
    if not np.isfinite(predicted).any():
        return
    unit = run.results["units"].get(phenotype, "")
    heads = ["deleted genes", *(f"{name} [{unit}]" if unit else name for name in ("predicted", "measured"))]

    def rows(key: NDArray[np.float64]) -> list[list[str]]:
        order = np.argsort(-np.where(np.isfinite(key), key, -np.inf), kind="stable")[:SHOWN]
        return [
            [about.strain(about.strains["test"][i]), number(float(predicted[i])), number(float(measured[i]))]
            for i in order.tolist()
            if np.isfinite(key[i])
        ]

    middle = float(np.nanmedian(predicted))
    strength = predicted if is_class else np.abs(predicted - middle)
    by = "predicted most surely" if is_class else f"farthest from the median prediction, {number(middle)}"
    yield GeneTable("Strongest predicted strains", f"Test strains {by}.", Grid(heads, rows(strength)))
    error = np.abs(predicted - measured)
    if np.isfinite(error).any():
        yield GeneTable("Worst missed strains", "Test strains with the largest errors.", Grid(heads, rows(error)))


@dataclass(frozen=True)
class Effects:
    """Hold the effects of genes in the strains of some parts.

    Attributes:
        strains: [G] number of strains with a measurement that delete each gene.
        predicted, measured: [G] effects: what a deletion adds to the phenotype on average.
        error: [G] mean absolute error of the gene's strains, drawn towards that of all strains.
    """

    genes: tuple[str, ...]
    strains: NDArray[np.int64]
    predicted: NDArray[np.float64]
    measured: NDArray[np.float64]
    error: NDArray[np.float64]


def gene_effects(
    strains: Sequence[Sequence[str]], predicted: NDArray[np.float64], measured: NDArray[np.float64]
) -> Effects:
    """Estimate effects of the genes that any strain with a measurement deletes, by ridge regressions.

    Args:
        strains: [S] deleted genes.
        predicted: [S] predicted phenotypes.
        measured: [S] measured phenotypes, NaN where there is no measurement.
    """
    usable = np.flatnonzero(np.isfinite(predicted) & np.isfinite(measured))
    chosen = [strains[i] for i in usable.tolist()]
    genes = Vocabulary.of(gene for strain in chosen for gene in strain if gene)
    indices = [[genes.index(gene) for gene in strain if gene] for strain in chosen]
    listed = Strains.from_indices(genes.names, indices)
    x, y = predicted[usable], measured[usable]
    if not len(genes):
        nothing = np.zeros(0)
        return Effects((), np.zeros(0, np.int64), nothing, nothing, nothing)
    times = np.asarray(listed.design.sum(axis=0)).ravel()
    error = np.abs(x - y)
    drawn = (listed.design.T @ error + RIDGE * error.mean()) / (times + RIDGE)
    of_x, of_y = (AdditiveRidge(RIDGE).fit(listed, values).effects for values in (x, y))
    return Effects(genes.names, times.astype(np.int64), of_x, of_y, drawn)


def _gene_tables(run: RunFiles, about: GenesOfRun, phenotype: str) -> Iterator[GeneTable]:
    """Make tables of genes with the largest effects, and of over-represented sets.

    The sets stand out among these genes or among the genes that are missed.
    """
    parts = [part for part in PARTS if phenotype in run.predictions.get(part, {})]
    found = gene_effects(
        [strain for part in parts for strain in about.strains[part]],
        *(
            np.concatenate([np.asarray(getattr(run.predictions[part][phenotype], name), float) for part in parts])
            for name in ("predicted", "measured")
        ),
    )
    if not found.genes:
        return
    unit = run.results["units"].get(phenotype, "")
    order = np.argsort(-np.abs(found.predicted), kind="stable")
    rows = [
        [about.shown(found.genes[i]), number(float(found.predicted[i])), number(float(found.measured[i])), str(n)]
        for i, n in ((i, int(found.strains[i])) for i in order[:SHOWN].tolist())
    ]
    parts_said = " and ".join(parts)
    yield GeneTable(
        "Genes with the largest effects",
        f"What the deletion of a gene adds to {phenotype}{f' in {unit}' if unit else ''}, by ridge regressions of the "
        f"predicted and of the measured values of the {parts_said} strains on their deleted genes. "
        f"{count(len(found.genes), 'gene')} in all.",
        Grid(["gene", "predicted effect", "measured effect", "strains"], rows),
    )
    for values, which, title in (
        (np.abs(found.predicted), "with the largest effects", "Sets among the genes with the largest effects"),
        (found.error, "whose strains are missed most", "Sets among the genes that are missed"),
    ):
        note, grid = _over_represented(about, found.genes, first_genes(values), which)
        yield GeneTable(title, note, grid)


@dataclass(frozen=True)
class Enrichment:
    """Describe a set of genes among chosen ones.

    Attributes:
        inside: chosen genes that are in the set.
        size: number of genes in the set among all that could be chosen.
        expected: number of chosen genes that would be in the set by chance.
        p: chance of as many or more (hypergeometric).
        q: false discovery rate at which the set is shown (Benjamini and Hochberg 1995), over all sets that are tested.
    """

    name: str
    kind: str
    inside: tuple[str, ...]
    size: int
    expected: float
    p: float
    q: float


def enrichments(sets: Sequence[GeneSets], chosen: Sequence[str], among: Sequence[str]) -> list[Enrichment]:
    """Return every set that is tested, the smallest chance first.

    Sets with at least three and at most half of the genes that could be chosen are tested. Sets with the same genes
    among these are one, which has the name of the first.

    Args:
        sets: sets of genes, of any kinds.
        among: genes that could have been chosen, including the chosen ones.
    """
    background, picked = set(among), set(chosen)
    tested: dict[frozenset[str], tuple[str, str]] = {}
    for kind in sets:
        for name, genes in kind.members.items():
            members = frozenset(background.intersection(genes))
            if SMALLEST_SET <= len(members) <= len(background) / 2:
                tested.setdefault(members, (name, kind.kind))
    if not tested:
        return []
    sizes = np.array([len(members) for members in tested])
    hits = np.array([len(members & picked) for members in tested])
    # The import is here, because scipy.stats takes a second to import, and predictions need no report.
    from scipy.stats import false_discovery_control, hypergeom

    p = np.clip(hypergeom.sf(hits - 1, len(background), sizes, len(picked)), 0, 1)
    q = false_discovery_control(p, method="bh")
    found = [
        Enrichment(name, kind, tuple(sorted(members & picked)), size, len(picked) * size / len(background), *chances)
        for (members, (name, kind)), size, *chances in zip(
            tested.items(), sizes.tolist(), p.tolist(), q.tolist(), strict=True
        )
    ]
    return sorted(found, key=lambda one: (one.p, one.name))


def first_genes(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the genes with the largest values, in order; none that only tie with a gene that would be left out.

    Ties would be broken by name, and neighbours by name are often of one pathway.
    """
    order = np.argsort(-values, kind="stable")
    size = int(np.clip(math.ceil(SHARE * len(order)), FEWEST, MOST))
    if size >= len(order):
        return order
    next_one = values[order[size]]
    return order[:size][values[order[:size]] > next_one + TIED * np.abs(values).max()]


def _over_represented(
    about: GenesOfRun, genes: Sequence[str], chosen: NDArray[np.int64], which: str
) -> tuple[str, Grid | None]:
    """Return a note on the sets that are over-represented among chosen genes, and their table, if there are any."""
    if len(genes) < FEWEST_GENES:
        return f"Too few genes to compare sets: {len(genes)}, and it takes {FEWEST_GENES}.", None
    if not len(chosen):
        return "No gene stands out: too many have the same value.", None
    found = enrichments(about.sets, [genes[i] for i in chosen.tolist()], genes)
    if not found:
        return "Neither the cell graph nor a file names sets of these genes.", None
    kinds = listing(dict.fromkeys(one.kind for one in found))
    said = (
        f"Among the {len(chosen)} genes {which}, of {len(genes):,}. {count(len(found), 'set')} tested ({kinds}): "
        "one-sided Fisher test, q by Benjamini and Hochberg over all of them"
    )
    over = [one for one in found if one.q <= LEVEL and one.inside]
    if not over:
        return f"{said}. None has q ≤ {LEVEL}; the smallest is {number(found[0].q, 2)} ({found[0].name}).", None
    more = f" The first {SHOWN} of {len(over)} are shown." if len(over) > SHOWN else ""
    rows = [
        [
            one.name,
            f"{len(one.inside)} of {one.size}",
            number(one.expected, 2),
            number(one.q, 2),
            number(one.p, 2),
            one.kind,
            listing(map(about.shown, one.inside), 8),
        ]
        for one in over[:SHOWN]
    ]
    heads = ["set", "genes", "expected", "q", "p", "kind", "which"]
    return f"{said}; shown up to q = {LEVEL}.{more}", Grid(heads, rows, notes=2)
