"""Give predictions intervals: read the calibration of a run, or calibrate several runs that predict together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from dglcell.data.config import ALIKE_EVERYWHERE
from dglcell.data.strains import Strains
from dglcell.data.table import CLASSIFICATION
from dglcell.errors import CheckpointError, ConfigError, count, listing
from dglcell.prediction.design import Design
from dglcell.prediction.table import prediction_columns
from dglcell.report.run_files import read_predictions
from dglcell.runs import MEND
from dglcell.training.checkpoint import Trained
from dglcell.uncertainty import Calibration, check_coverage, conformal_quantile, predicted_column, spread_column

log = logging.getLogger("dglcell")


@dataclass(frozen=True)
class Intervals:
    """These make intervals of what models predict."""

    calibration: Calibration
    coverage: float  #: share of the strains whose measured value shall be in its interval

    @classmethod
    def of(cls, members: Sequence[Trained], coverage: float) -> Self:
        """Return the intervals of one model, or of the mean of several.

        Args:
            coverage: as above.

        Raises:
            CheckpointError: a run has no calibration, or one of another checkpoint, or predictions of a run are missing
                or damaged.
            ConfigError: the coverage is not between 0 and 1, or there are too few validation strains for it; something
                else predicts than what was best on the validation part; or the runs have other splits.
        """
        check_coverage(coverage)
        others = {one.name for member in members for one in member.chosen.values() if not one.is_best}
        if others:
            raise ConfigError(
                "intervals are calibrated for what was best on the validation part",
                got=f"predictions of {listing(sorted(others))}",
                do="leave out `--with`, or `--interval`",
            )
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
            log.warning(
                "%s: the intervals may be too narrow, because training has never changed these genes, and no strain "
                "that the intervals are calibrated with has more than %s of this kind",
                what,
                count(most, "gene"),
            )


def _calibration_of(member: Trained) -> Calibration:
    """Read the calibration of a run, which must be of the checkpoint that predicts."""
    found = Calibration.load(member.run.calibration)
    if (found.checkpoint, found.epoch) != (member.path.name, member.epoch):
        raise CheckpointError(
            f"the intervals of the run '{member.run.path}' are of another checkpoint",
            got=f"{member.path.name} after epoch {member.epoch + 1}",
            expected=f"{found.checkpoint} after epoch {found.epoch + 1}",
            do="leave out `--checkpoint`, or " + MEND,
        )
    if len(found.training) != len(member.cell.genes) or tuple(found.phenotypes) != member.phenotypes:
        what, expected = f"'{member.run.calibration}' is of another run", "the file as `dglcell train` wrote it"
        raise CheckpointError(what, expected=expected, do=MEND)
    return found


def _together(first: Calibration, members: Sequence[Trained]) -> Calibration:
    """Calibrate the mean of several runs on the validation part that they share."""
    if len({member.split_sha256 for member in members}) > 1:
        raise ConfigError(
            "runs with different splits have no validation part in common, on which intervals could be calibrated",
            got=f"{len(members)} runs",
            expected="runs of several seeds with the same `split.seed`",
            do="predict with one of the runs, or leave out `--interval`",
        )
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
