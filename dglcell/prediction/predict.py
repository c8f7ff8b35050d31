"""Predict strains, with intervals, and designs part by part, and choose which strains come first."""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from dglcell.data.config import ALIKE_EVERYWHERE
from dglcell.data.strains import Strains
from dglcell.data.table import CLASSIFICATION
from dglcell.errors import CheckpointError, ConfigError, count, did_you_mean, listing
from dglcell.files.atomic import atomic_file, import_pyarrow, named, sha256_file
from dglcell.graph.vocabulary import Vocabulary
from dglcell.machine import ALONE, Ranks
from dglcell.models.cell_model import CellModel
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.prediction import EFFECT, UNCERTAIN
from dglcell.prediction.columns import GenotypeTable
from dglcell.prediction.design import Design
from dglcell.prediction.table import (
    PREDICTED_BY,
    missing_parts,
    predicted_by,
    prediction_columns,
    rows_of_parts,
    write_part,
    write_tables,
)
from dglcell.report.run_files import read_predictions
from dglcell.runs import MEND
from dglcell.training.checkpoint import Trained
from dglcell.training.predicting import mixed, predict_batches
from dglcell.uncertainty import (
    Calibration,
    check_coverage,
    conformal_quantile,
    interval_columns,
    predicted_column,
    spread_column,
)

log = logging.getLogger("dglcell")


WORTH_SHARING = 200
"""Strains that must have deletions in common for these deletions to be computed first, and once."""

MOST_STRAINS = 256
"""Strains of a forward pass, if memory is enough and nothing else is asked for."""


def fitting_batch_of(members: Sequence[Trained]) -> int:
    """Return the number of strains per forward pass that is expected to fit into memory for every model."""
    return min(member.model.fitting_batch(MOST_STRAINS) for member in members)


def choose_for_design(members: Sequence[Trained], design: Design, precision: str) -> None:
    """Choose how the strains of a design are computed, by the table of defaults and one of `PRECISIONS`."""
    for member in members:
        model = member.model
        if isinstance(model, CellModel) and model.own_graphs:
            model.choose_for_run(_device(member).type, len(design), precision)
        elif precision == "bf16":
            what = "bfloat16 is for differences between the states of strains, and this model has none"
            got = f"--precision {precision} and a model `{model.config.name}`"
            raise ConfigError(what, got=got, do="leave --precision out")


def batches(strains: Strains, size: int, worth_sharing: int | None = None) -> Iterator[GenotypeBatch]:
    """Yield strains in order, ``size`` at a time, with the genes, K − 1 at most, that a batch's strains have in common.

    A model may compute once what these strains share, so that batches end where their first genes change. They are not
    cut for fewer than ``worth_sharing`` strains, never where it is None, and never where genes are weakened.
    """
    here, number, ends = strains.to("cpu"), len(strains), list[tuple[int, NDArray[np.int64]]]()
    if worth_sharing is not None and number and strains.activities is None:
        genes_SK = strains.targets.reshape(number, -1)
        for length in range(genes_SK.shape[1] - 1, 0, -1):
            differ = (genes_SK[1:, :length] != genes_SK[:-1, :length]).any(axis=1)
            ends.append((length, np.concatenate([[0], np.flatnonzero(differ) + 1, [number]])))
    first = 0
    while first < number:
        last, shared = min(first + size, number), tuple[int, ...]()
        for length, bounds in ends:
            after = int(np.searchsorted(bounds, first, side="right"))
            rest = int(bounds[after]) - first
            if worth_sharing is not None and bounds[after] - bounds[after - 1] >= worth_sharing:
                # As few batches as may be, of about the same size.
                last = first + math.ceil(rest / math.ceil(rest / size))
                shared = tuple(genes_SK[first, :length].tolist())
                break
        yield replace(here.slice(first, last).perturbations, most=here.max_deletions, shared=shared)
        first = last


def predict_rows(
    members: Sequence[Trained],
    strains: Strains,
    *,
    batch_size: int | None = None,
    worth_sharing: int | None = None,
    intervals: Intervals | None = None,
) -> dict[str, NDArray[Any]]:
    """Predict strains by one or several models.

    Args:
        members: the models, on the device where this runs.
        strains: in numpy, with genes of the cell graph and the covariates that the models see.
        batch_size: strains per forward pass; as many as fit into memory where None.
        worth_sharing: as for `batches`, where models compute once what strains share.

    Returns:
        The columns of `prediction_columns`, and those of intervals.
    """
    phenotypes = members[0].phenotypes
    predicted_RST = np.full((len(members), len(strains), len(phenotypes)), np.nan, np.float32)
    for member, predicted_ST in zip(members, predicted_RST, strict=True):
        chosen = [member.predicts(phenotype) for phenotype in phenotypes]
        if any(one.weight < 1 for one in chosen) and len(strains):
            size, device = batch_size or fitting_batch_of([member]), _device(member)
            cut = batches(strains, size, worth_sharing if member.model.shares_deletions else None)
            moved = (batch.to(device, non_blocking=True) for batch in cut)
            predicted_ST[:] = predict_batches(member.model, member.normaliser, moved)
        for t, one in enumerate(chosen):
            if one.baseline is not None and len(strains):
                predicted_ST[:, t] = mixed(predicted_ST[:, t], one.baseline.predict(strains), one.weight)
    columns = prediction_columns(phenotypes, predicted_RST)
    if intervals is None:
        return columns
    return columns | intervals.calibration.columns(strains, columns, intervals.coverage)


def predict_table(
    members: Sequence[Trained],
    table: GenotypeTable,
    *,
    batch_size: int | None = None,
    intervals: Intervals | None = None,
) -> dict[str, Any]:
    """Return the column ``predicted_by`` and those of `predict_rows` for each row of a table, NaN without a strain."""
    nothing = predict_rows(members, table.strains.take(np.arange(0)), intervals=intervals)
    table.refuse_columns([PREDICTED_BY, *nothing])
    if intervals is not None:
        intervals.warn_of_new_genes(table.strains)
    found = predict_rows(members, table.strains, batch_size=batch_size, intervals=intervals)
    return {PREDICTED_BY: predicted_by(members)} | {name: table.of_rows(of, np.nan) for name, of in found.items()}


def _device(member: Trained) -> torch.device:
    return next(member.model.parameters()).device


# Intervals.


@dataclass(frozen=True)
class Intervals:
    """These make intervals of what models predict."""

    calibration: Calibration
    coverage: float  #: share of the strains whose measured value shall be in its interval

    @classmethod
    def of(cls, members: Sequence[Trained], coverage: float) -> Self:
        """Return the intervals of one model, or of the mean of several."""
        check_coverage(coverage)
        others = {one.name for member in members for one in member.chosen.values() if not one.is_best}
        if others:
            what, got = "intervals are calibrated for what was best on the validation part", listing(sorted(others))
            raise ConfigError(what, got=f"predictions of {got}", do="leave out `--with`, or `--interval`")
        found = [*map(_calibration_of, members)]
        calibration = found[0] if len(found) == 1 else _together(found[0], members)
        for one in calibration.phenotypes.values():
            if one.kind != CLASSIFICATION:
                conformal_quantile(one.scores, coverage)
        return cls(calibration, coverage)

    def warn_of_new_genes(self, rows: Strains | Design) -> None:
        """Say which strains have more genes that training never changed than any validation strain has."""
        new, most = self.calibration.training == 0, self.calibration.most_new
        if isinstance(rows, Design):
            number = int(new[list(rows.genes)].sum())
            beyond, what = min(number, rows.size) > most, f"strains with {count(number, 'gene')} of the design"
        else:
            strains = int((rows.total(new[rows.targets]) > most).sum())
            beyond, what = strains > 0, count(strains, "strain")
        if beyond:
            said = "%s: the intervals may be too narrow, because training has never changed these genes, and no strain "
            said += "that the intervals are calibrated with has more than %s of this kind"
            log.warning(said, what, count(most, "gene"))


def _calibration_of(member: Trained) -> Calibration:
    """Read the calibration of a run, which must be of the checkpoint that predicts."""
    found = Calibration.load(member.run.calibration)
    of_both = (member.path.name, member.epoch), (found.checkpoint, found.epoch)
    if of_both[0] != of_both[1]:
        what = f"the intervals of the run '{member.run.path}' are of another checkpoint"
        got, expected = (f"{name} after epoch {epoch + 1}" for name, epoch in of_both)
        raise CheckpointError(what, got=got, expected=expected, do="leave out `--checkpoint`, or " + MEND)
    if len(found.training) != len(member.cell.genes) or tuple(found.phenotypes) != member.phenotypes:
        what, expected = f"'{member.run.calibration}' is of another run", "the file as `dglcell train` wrote it"
        raise CheckpointError(what, expected=expected, do=MEND)
    return found


def _together(first: Calibration, members: Sequence[Trained]) -> Calibration:
    """Calibrate the mean of several runs on the validation part that they share."""
    if len({member.split_sha256 for member in members}) > 1:
        what = "runs with different splits have no validation part in common, on which intervals could be calibrated"
        got, expected = f"{len(members)} runs", "runs of several seeds with the same `split.seed`"
        do = "predict with one of the runs, or leave out `--interval`"
        raise ConfigError(what, got=got, expected=expected, do=do)
    phenotypes = members[0].phenotypes
    tables = [read_predictions(member.run, "validation") for member in members]
    for table, member in zip(tables, members, strict=True):
        if not set(phenotypes) <= set(table) or {len(one) for one in table.values()} != {len(first.structure)}:
            what = f"the predictions of the validation part in '{member.run.path}' are of other strains"
            raise CheckpointError(what, do=MEND)
    predicted_RST = np.array([[table[name].predicted for name in phenotypes] for table in tables]).transpose(0, 2, 1)
    columns = prediction_columns(phenotypes, predicted_RST)
    return first.fitted(
        {name: one.kind for name, one in first.phenotypes.items()},
        {name: columns[predicted_column(name)] for name in phenotypes},
        {name: tables[0][name].measured for name in phenotypes},
        {name: columns[spread_column(name)] for name in phenotypes},
        constant=members[0].config.split.kind in ALIKE_EVERYWHERE,
    )


# Designs.


@dataclass(frozen=True)
class Ranking:
    """A ranking says which strains of a design are written, and in which order."""

    #: ``effect``, by the distance from the wild type, or ``uncertain``, by the width of an interval, or else the
    #: standard deviation over seeds; the largest come first
    by: str
    top: int
    phenotype: str  #: phenotype whose predictions are compared
    wild_type: float = 0.0  #: what is predicted for the wild type of the design, 0 where no model has a value

    @classmethod
    def of(
        cls,
        members: Sequence[Trained],
        design: Design,
        by: str,
        top: int,
        phenotype: str | None = None,
        *,
        intervals: Intervals | None = None,
    ) -> Ranking:
        """Make a ranking of what models predict of a design; the phenotype may be None where they predict only one."""
        known = members[0].phenotypes
        if (phenotype not in known) if phenotype else len(known) > 1:
            got, expected = phenotype or f"a model of {len(known)}", " or ".join(known)
            do = did_you_mean(phenotype or "", known, "name one with `--phenotype`")
            raise ConfigError("strains are ranked by one phenotype", got=got, expected=expected, do=do)
        made = cls(by, top, phenotype or known[0])
        if by == UNCERTAIN:
            made._check_uncertain(members, intervals)
            return made
        wild_type = predict_rows(members, design.wild_type(members[0].cell.genes.names))
        return replace(made, wild_type=float(np.nan_to_num(wild_type[predicted_column(made.phenotype)][0])))

    def _check_uncertain(self, members: Sequence[Trained], intervals: Intervals | None) -> None:
        """Refuse models that do not say how uncertain they are, and warn where that is the same of all strains."""
        calibrated = None if intervals is None else intervals.calibration.phenotypes[self.phenotype]
        chosen = {(one.name, one.weight, of.split_sha256) for of in members for one in [of.predicts(self.phenotype)]}
        if calibrated is not None and calibrated.kind != CLASSIFICATION:
            alike = "" if calibrated.difficulty.weights else "intervals are equally wide"
        elif len(members) == 1:
            do = "give the folder of an experiment with several, or add `--interval 0.9`, which classes do not have"
            raise ConfigError(f"`--by {self.by}` requires several seeds or intervals", got="one run", do=do)
        else:
            alike = "all seeds predict by the same baseline" if len(chosen) == 1 and min(chosen)[1] == 1 else ""
        if alike:
            log.warning("all strains are equally uncertain, and their order says nothing: %s", alike)

    def first(self, table: Any) -> Any:
        """Return the first ``top`` rows of a pyarrow table, in order; of equal rows the earlier comes first."""
        predicted = table[predicted_column(self.phenotype)].to_numpy().astype(float)
        low, high = interval_columns(self.phenotype)
        if self.by == EFFECT:
            key = np.abs(predicted - self.wild_type)
        elif low in table.column_names:
            key = table[high].to_numpy().astype(float) - table[low].to_numpy()
        else:
            key = table[spread_column(self.phenotype)].to_numpy().astype(float)
        return table.take(np.argsort(-key, kind="stable")[: self.top])

    def merge(self, tables: Iterator[Any], genes: Vocabulary) -> Iterator[Any]:
        """Merge tables that `first` has made, in the order of the design, into one table of the first rows.

        Columns ``name_1`` and so on come behind those of genes, if the vocabulary has standard names.
        """
        pa, _ = import_pyarrow()
        merged = functools.reduce(
            lambda best, more: self.first(pa.concat_tables([best, more]).unify_dictionaries()), tables
        ).combine_chunks()
        columns = [name for name in merged.column_names if name.startswith("gene_") and genes.shown]
        for k, column in enumerate(columns):
            names = pa.array([genes.standard(gene) for gene in merged[column].to_pylist()], pa.string())
            merged = merged.add_column(len(columns) + k, column.replace("gene_", "name_"), names)
        yield merged


PART_STRAINS, FEW_STRAINS, MOST_PARTS = 2**17, 2**14, 4096
"""Strains of a part at most, which is what is lost when a process is stopped. Small designs have smaller parts, of
``FEW_STRAINS`` at least."""


def predict_design(
    members: Sequence[Trained],
    design: Design,
    output: Path,
    *,
    batch_size: int | None = None,
    ranking: Ranking | None = None,
    intervals: Intervals | None = None,
    ranks: Ranks = ALONE,
    worth_sharing: int = WORTH_SHARING,
    overwrite: bool = False,
    report: Callable[[str], None] = print,
) -> float | None:
    """Predict the strains of ``design`` in order and write them to ``output``.

    Columns are those of the design, ``predicted_<phenotype>`` in original units, in Parquet float32, and of several
    models ``sd_<phenotype>`` (`prediction_columns`), and those of intervals.

    Args:
        members: one or several models, on the device where this runs.
        output: a ``.parquet`` or ``.csv`` file, which is written whole or not at all; or, without a suffix, a folder
            of Parquet files (`rows_of_parts`): the same call goes on with those that are missing.
        ranking: which strains are written to a file, and in which order; all in the order of the design where None.
        batch_size, intervals, worth_sharing: as for `predict_rows`.
        ranks: which of several processes this is, each of which takes some of the parts of a folder.
        overwrite: whether a folder's parts of other predictions are removed.
        report: function that gets a line of text for every part.

    Returns:
        Strains per second of this call, 0 where nothing was left to predict; None where other processes are still at
        work on the folder.
    """
    genes, batch_size = members[0].cell.genes, batch_size or fitting_batch_of(members)
    predict = functools.partial(
        predict_rows, members, batch_size=batch_size, worth_sharing=worth_sharing, intervals=intervals
    )
    if design.activities:
        # A model that refuses activities does so before a folder of parts is made.
        predict(design.strains(0, 1, genes.names))
    about = _describe(members, intervals) | design.describe()
    if ranking is not None:  # what the order depends on beside the predictions
        about |= {"by": ranking.by, "top": ranking.top, "phenotype": ranking.phenotype}
    if (choices := getattr(members[0].model, "choices", None)) is not None and choices.half:
        about["differences"] = "bfloat16"
    pa, _ = import_pyarrow()
    began, total = time.perf_counter(), len(design)

    def make(first: int, last: int) -> Any:
        strains = design.strains(first, last, genes.names)
        by = named(np.zeros(len(strains), np.int64), (predicted_by(members),))
        table = pa.table(design.columns(strains) | {PREDICTED_BY: by} | predict(strains))
        return table if ranking is None else ranking.first(table)

    size = max(1, min(PART_STRAINS, max(FEW_STRAINS, total // MOST_PARTS), total // ranks.size))
    size = size if output.suffix else rows_of_parts(output, about, size, overwrite=overwrite)
    parts = -(-total // size)
    mine = range(parts) if output.suffix else range(ranks.rank, parts, ranks.size)
    left = [*mine] if output.suffix else missing_parts(output, mine)
    of_mine, of_left = (sum(min(size, total - part * size) for part in some) for some in (mine, left))
    if of_left < of_mine:
        goes_on = f"continuing after {of_mine - of_left:,} of {of_mine:,} strains in {output}"
        report(goes_on if left else f"{output} is complete already")

    def tables() -> Iterator[Any]:
        done, begun = of_mine - of_left, time.perf_counter()
        for part in left:
            last = min((part + 1) * size, total)
            yield make(part * size, last)
            done += last - part * size
            rate = (done - of_mine + of_left) / (time.perf_counter() - begun)
            rest = timedelta(seconds=round((of_mine - done) / rate))
            report(f"{done:,} of {of_mine:,} strains, {rate:,.0f} strains/s, {rest} left")

    if output.suffix:
        with atomic_file(output) as partial:
            found = tables() if ranking is None else ranking.merge(tables(), genes)
            write_tables(partial, output.suffix, found, about)
    else:
        for part, table in zip(left, tables(), strict=True):
            write_part(output, part, table)
        if missing_parts(output, range(parts)):
            return None
    return of_left / (time.perf_counter() - began)


def _describe(members: Sequence[Trained], intervals: Intervals | None) -> dict[str, Any]:
    return {
        "checkpoint_sha256": [sha256_file(member.path) for member in members],
        "cell_sha256": members[0].cell.sha256,
        "units": dict(zip(members[0].phenotypes, members[0].units, strict=True)),
        "predicted_by": [predicted_by([member]) for member in members],
        **({} if intervals is None else {"interval": intervals.coverage}),
    }
