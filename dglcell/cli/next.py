"""Run ``dglcell next``: choose which strains to measure next."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dglcell.cli.arguments import add_device, positive, reporter
from dglcell.cli.outputs import check_output
from dglcell.cli.predict import add_candidates, check_candidates, design_of, table_of
from dglcell.errors import CheckpointError, ConfigError
from dglcell.prediction import STRATEGIES

if TYPE_CHECKING:
    from dglcell.api import Predictor
    from dglcell.data.partition import Keys

SHARE_OF_A_GENE = 8
"""By default at most an eighth of a batch changes the same gene."""

HELP = "choose which strains to measure next"
EPILOG = """\
  dglcell next RUN --all-pairs --batch 96 -o next.csv
  dglcell next RUN candidates.csv --batch 96 --strategy sick -o next.csv
Candidates are a table, or a design as `dglcell predict` has it. Strains that the run has measured are left out, as far
as its store is here.

strategies:
`informative`, the default, takes strains whose phenotypes are the most uncertain together: strains with a gene in
common tell about each other, so that a batch has many genes. `effect` takes the predictions that are farthest from the
median of all candidates. `sick` takes strains whose whole interval is lowest, or classes that are most probable. For
these two --per-gene limits how many strains of the batch change the same gene.

The uncertainty is the standard deviation over seeds if RUN is the folder of an experiment with several, and otherwise
half the width of an interval. The table has the strains in order, with predictions and intervals. All candidates are
predicted in one go: for very many, write the first of a ranking with `dglcell predict --top`, and take these as
candidates.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for candidates, the batch and the output."""
    add_candidates(parser, "table of candidates")
    parser.add_argument("--batch", type=positive, default=96, metavar="N", help="number of strains (default: 96)")
    parser.add_argument("--strategy", choices=STRATEGIES, default="informative", help="default: informative")
    parser.add_argument(
        "--per-gene",
        type=positive,
        metavar="N",
        help="most strains that change the same gene, for effect and sick (default: an eighth of the batch)",
    )
    parser.add_argument("--phenotype", metavar="NAME", help="phenotype that counts, if there are several")
    parser.add_argument(
        "--interval", type=float, default=0.9, metavar="C", help="share that intervals shall hold (default: 0.9)"
    )
    parser.add_argument("--measured-too", action="store_true", help="also take strains that the run has measured")
    parser.add_argument(
        "--output", "-o", type=Path, metavar="FILE", help="output: .csv or .parquet (default: print it)"
    )
    add_device(parser)


def choose(options: argparse.Namespace) -> None:
    """Run ``dglcell next``.

    Raises:
        ConfigError: there are no candidates, or fewer than the batch has, or several phenotypes.
    """
    check_candidates(options, "among which strains shall be chosen?")
    if options.per_gene and options.strategy == "informative":
        raise ConfigError("--per-gene is for the strategies effect and sick", do="leave it out, or choose one of these")
    from dglcell.trained_models import find_run

    find_run(options.run_directory)  # before anything is imported that takes seconds
    from dglcell.api import load
    from dglcell.files.parquet import check_output as check_format
    from dglcell.machine.devices import threads
    from dglcell.prediction.intervals import Intervals
    from dglcell.prediction.next_strains import Candidates, choose_next
    from dglcell.prediction.predict import fitting_batch_of
    from dglcell.prediction.ranking import phenotype_of
    from dglcell.prediction.table import write_table

    if options.output is not None:
        check_format(options.output)
        check_output(options.output, "predictions", [path for path in (options.genotypes, options.genes) if path])
    with threads(None):
        predictor = load(options.run_directory, checkpoint=options.checkpoint, device=options.device)
        members = predictor.members
        phenotype = phenotype_of(predictor.phenotypes, options.phenotype, "strains are chosen by one phenotype")
        intervals = Intervals.of(members, predictor.directories, options.interval)
        rows = design_of(options, members) if options.designs else table_of(options, members, intervals)
        intervals.warn_of_new_genes(rows)
        candidates = Candidates.of(
            members,
            rows,
            phenotype,
            measured=None if options.measured_too else _measured(predictor),
            intervals=intervals,
            batch_size=fitting_batch_of(members, rows),
            report=reporter(options) if options.output is not None else lambda text: None,
        )
        limit = None if options.strategy == "informative" else options.per_gene
        if limit is None and options.strategy != "informative":
            limit = math.ceil(options.batch / SHARE_OF_A_GENE)
        chosen = choose_next(candidates, options.strategy, options.batch, limit)
    write_table(options.output, *candidates.table(chosen))
    available = int(candidates.available.sum())
    where = f", written to {options.output}" if options.output else ""
    said = f"{len(chosen):,} of {available:,} candidates by `{options.strategy}`{where}"
    print(said, file=sys.stdout if options.output else sys.stderr)


def _measured(predictor: Predictor) -> Keys | None:
    """Return the strains that the runs have measured; None where their store is gone, which is said."""
    from dglcell.prediction.known_strains import strains_of_runs

    try:
        return strains_of_runs(predictor.members, predictor.directories, measured=True)
    except CheckpointError as error:
        text = str(error).partition("\n")[0]
        print(f"measured strains are not left out: {text}", file=sys.stderr)
        return None
