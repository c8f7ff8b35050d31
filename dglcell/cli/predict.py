"""Run ``dglcell predict`` on the genotypes of a CSV, or on all single genes, pairs or triples."""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dglcell.cli.arguments import (
    add_device,
    add_overwrite,
    add_reading,
    add_run,
    check_outputs,
    natural,
    positive,
    reporter,
    strengths,
)
from dglcell.errors import ConfigError, aligned, count
from dglcell.prediction import EFFECT, KINDS, PRECISIONS, RANKINGS

if TYPE_CHECKING:
    from dglcell.machine.processor import Ranks
    from dglcell.prediction.design import Design
    from dglcell.prediction.intervals import Intervals
    from dglcell.training.checkpoint import Trained

FINISHED = "its share is finished; the process that finishes last writes the output"

OF_DESIGNS = ("genes", "strength", "start", "limit", "top", "precision")
"""These options are of a design, and a table has none of them."""

HELP = "predict phenotypes of a table of genotypes, or of all single genes, pairs or triples"
EPILOG = """\
a table:
  dglcell predict RUN genotypes.csv -o predictions.csv
Write the deleted genes into columns gene_1, gene_2, …, or into one column `genes` separated by `;`. Otherwise the
columns of the training table are read, or those in --columns. The table is text with commas, tabs or semicolons,
plain or .gz, or Parquet. The output has the same rows in the same order, and a column predicted_PHENOTYPE for each
phenotype in original units. If a row cannot be predicted, the error names its line, and nothing is written. With
--unknown empty, rows with genes that the model lacks are kept without a prediction.

strengths and conditions:
  dglcell predict RUN doses.csv -o predictions.csv
  dglcell predict RUN genotypes.csv --condition medium=glycerol -o out.csv
A gene may be weakened instead of deleted. Write what is left of it behind the gene, b0008:0.3, or into columns
strength_1, strength_2, …, or into one column `strengths`. 0 or nothing is a deletion, and 1 is the wild type. If the
model sees conditions, such as the growth medium, the table has each of them in a column of its name, or of the name
that it had in training; --condition gives one value for all rows. A row without a gene is then the wild type.

several seeds:
  dglcell predict runs/EXPERIMENT genotypes.csv -o predictions.csv
Of an experiment's folder all seeds predict: predicted_PHENOTYPE is their mean, and sd_PHENOTYPE their standard
deviation.

how sure:
  dglcell predict RUN genotypes.csv --interval 0.9 -o predictions.csv
Columns low_PHENOTYPE and high_PHENOTYPE are the ends of an interval. It is calibrated with strains of the validation
part, so that 90 % of strains like these have their measured value in it. `dglcell evaluate` says how many of the test
strains do. Classes have a column probability_PHENOTYPE instead, a calibrated probability. See the guide on intervals.

what predicts:
  dglcell predict RUN genotypes.csv --with network -o predictions.csv
A run has a network, baselines, and an ensemble of the network with the best baseline. The one that is best on the
validation part predicts. The first line says which and why, and the column `predicted_by` names it. --with takes
another one.

a design:
  dglcell predict RUN --all-triples --genes genes.txt -o predictions.parquet
The columns are gene_1, gene_2, … and predicted_PHENOTYPE. The rows are in lexicographic order of the list.
Finished parts are kept in OUTPUT.parts: a command that was stopped continues when it is given again. If the output has
no suffix, it is a folder of these parts, Parquet files that pandas, polars and Spark read as one table.

a table of doses:
  dglcell predict RUN --all-singles --strength 0,0.1,0.3,0.5 \\
      --condition medium=glycerol -o doses.csv
Each gene of a combination takes each strength, so that a pair comes 16 times here. Columns strength_1, strength_2, …
say which. All strains of a design have the conditions that --condition gives.

the next experiments:
  dglcell predict runs/EXPERIMENT --all-pairs --top 200 --by uncertain \\
      -o next.csv
All strains of a design are predicted, and the first ones are written, or printed without -o. `effect` ranks by the
distance from what is predicted for the wild type. `uncertain` ranks by the standard deviation over seeds, or with
--interval by the width of the interval.

several processes, with a GPU each where --device is cuda:
  torchrun --nproc-per-node 8 --no-python \\
      dglcell predict RUN --all-triples -o predictions.parquet --device cuda
  srun --ntasks 8 --gpus-per-task 1 \\
      dglcell predict RUN genotypes.csv -o predictions.csv --device cuda
They divide the strains among themselves, and the last to finish writes the output.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for what is predicted, where it is written, and how."""
    add_run(parser)
    parser.add_argument("genotypes", type=Path, nargs="?", metavar="CSV", help="table of genotypes")
    for size, kind in KINDS.items():
        things = "single genes" if size == 1 else f"{kind} of genes"
        parser.add_argument(f"--all-{kind}", dest="designs", action="append_const", const=size, help=f"all {things}")
    parser.add_argument(
        "--genes", type=Path, metavar="FILE", help="genes of the design, one name a line (default: all of the model)"
    )
    parser.add_argument(
        "--strength",
        type=strengths,
        metavar="S,S,…",
        help="what is left of each gene of the design, e.g. 0.1,0.3 (default: nothing)",
    )
    parser.add_argument("--start", type=natural, metavar="N", help="number of the design's first strain (default: 0)")
    parser.add_argument("--limit", type=positive, metavar="N", help="largest number of strains (default: all)")
    add_reading(parser)
    parser.add_argument(
        "--unknown", default="refuse", choices=("refuse", "empty"), help="rows with genes that the model lacks (refuse)"
    )
    parser.add_argument(
        "--top", type=positive, metavar="N", help="only the first N strains of a ranking, written or printed"
    )
    parser.add_argument("--by", choices=RANKINGS, help="the ranking (default: effect)")
    parser.add_argument("--phenotype", metavar="NAME", help="phenotype to rank by, if there are several")
    parser.add_argument(
        "--output",
        "-o",
        type=Path,
        metavar="FILE",
        help="output: .csv or .parquet; of a design also a folder (default for a table and --top: print it)",
    )
    add_overwrite(parser)
    parser.add_argument(
        "--with",
        dest="predict_with",
        default="best",
        choices=("best", "network", "baseline", "ensemble"),
        help="what predicts: the best on the validation part, or one by name (default: best)",
    )
    parser.add_argument(
        "--interval",
        type=float,
        metavar="C",
        help="add the ends of an interval that shall hold this share of measured values, e.g. 0.9",
    )
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="threads of the processor (default: the fastest number)"
    )
    parser.add_argument(
        "--batch-size", type=positive, metavar="N", help="strains per forward pass (256, or fewer that fit into memory)"
    )
    add_device(parser)
    parser.add_argument(
        "--precision", choices=PRECISIONS, help="of a design: 32-true, or bf16 for differences of strains (32-true)"
    )


def predict(options: argparse.Namespace) -> None:
    """Run ``dglcell predict``."""
    from dglcell.files.parquet import check_output as check_format
    from dglcell.machine.processor import Ranks

    _check(options)
    if options.output is not None:
        check_format(options.output, may_be_folder=bool(options.designs) and options.top is None)
    # A design that was stopped goes on with its own parts, and `PartFiles` tells what is its own.
    check_outputs(options, None if options.designs else options.output)
    from dglcell.trained_models import find_run

    find_run(options.run_directory)  # before anything is imported that takes seconds
    ranks = Ranks.of()
    if ranks.size > 1 and options.output is None:
        raise ConfigError("several processes cannot print one table", got=ranks.name, do="pass --output FILE")
    from dglcell.api import load
    from dglcell.machine.devices import check_device, threads
    from dglcell.prediction.intervals import Intervals

    check_device(options.device)
    with threads(options.threads):
        device = _device_of_rank(options.device, ranks)
        way = options.predict_with
        loaded = load(options.run_directory, checkpoint=options.checkpoint, device=device, predict_with=way)
        members, share = loaded.members, options.interval
        intervals = None if share is None else Intervals.of(members, loaded.directories, share)
        if options.designs and options.output is None:
            with tempfile.TemporaryDirectory() as folder:
                first = Path(folder) / "first.csv"
                _predict_design(options, members, intervals, ranks, first)
                with open(first, newline="", encoding="utf-8") as file:
                    rows = list(csv.reader(file))
            texts = [i for i, name in enumerate(rows[0]) if name.startswith(("gene_", "name_", "predicted_by"))]
            print("\n".join(line.rstrip() for line in aligned(rows, texts)))
        elif options.designs:
            _predict_design(options, members, intervals, ranks, options.output)
        else:
            _predict_table(options, members, intervals, ranks)


def _check(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other."""
    wanted = [str(options.genotypes)] if options.genotypes is not None else []
    wanted += [f"--all-{KINDS[size]}" for size in options.designs or []]
    if len(wanted) != 1:
        raise ConfigError(
            "what shall be predicted?",
            got=" and ".join(wanted) or "nothing",
            expected="a CSV, or --all-singles, --all-pairs or --all-triples",
        )
    stray = [name for name in OF_DESIGNS if getattr(options, name) is not None]
    if stray and not options.designs:
        raise ConfigError(
            "some options are of designs, and this is a table",
            got=", ".join(f"--{name}" for name in stray),
            do="leave them out, or ask for --all-singles, --all-pairs or --all-triples",
        )
    names = [name for name, _ in options.condition]
    if len(set(names)) < len(names):
        raise ConfigError("--condition gives a condition twice", got=", ".join(names), expected="each condition once")
    if options.designs:
        from dglcell.files.parquet import import_pyarrow

        import_pyarrow()  # parts of a design are Parquet; a missing pyarrow is reported at once
    if options.designs and options.output is None and options.top is None:
        do = "or print the first ones of a ranking: --top N"
        raise ConfigError(
            "where shall the predictions go?", expected="--output FILE: a design is written in parts", do=do
        )
    if options.top is None and (options.by or options.phenotype):
        raise ConfigError("how many strains of the ranking are wanted?", expected="--top N")


def _design_of(options: argparse.Namespace, members: Sequence[Trained]) -> Design:
    """Return the design that the options define."""
    from dglcell.prediction.conditions import asked_of, completion_of, wild_type_in
    from dglcell.prediction.design import Design, every_gene, read_genes

    known = members[0].cell.genes
    genes = every_gene(known) if options.genes is None else read_genes(options.genes, known)
    background = wild_type_in(asked_of(members[0]), dict(options.condition), "give each as --condition NAME=VALUE")
    return Design.of(
        genes,
        options.designs[0],
        options.start or 0,
        options.limit,
        strengths=options.strength or (),
        background=background,
        names=known.names,
        complete=completion_of(members[0]),
    )


def _device_of_rank(device: str, ranks: Ranks) -> str:
    """Return the device of a process: a GPU of its own for each process of a machine that sees several GPUs."""
    if device != "cuda" or ranks.size == 1:
        return device
    import torch

    return f"cuda:{ranks.local % torch.cuda.device_count()}"


def _predict_table(
    options: argparse.Namespace, members: Sequence[Trained], intervals: Intervals | None, ranks: Ranks
) -> None:
    from dglcell.prediction.columns import GenotypeColumns
    from dglcell.prediction.predict import predict_table
    from dglcell.prediction.table import PREDICTED_BY, predicted_by, read_genotypes

    trained = members[0]
    table = read_genotypes(
        options.genotypes,
        trained.cell.genes,
        trained.phenotypes,
        GenotypeColumns.of(trained, options.columns, options.aliases, options.unknown),
        conditions=dict(options.condition),
        with_spread=len(members) > 1,
        more=() if intervals is None else intervals.column_names(),
    )
    table = table.with_column(PREDICTED_BY, predicted_by(members))
    if intervals is not None:
        intervals.warn_of_new_genes(table)
    is_complete = predict_table(
        members, table, options.output, batch_size=options.batch_size, intervals=intervals, ranks=ranks
    )
    if not is_complete:
        reporter(options, f"{ranks.name}:")(FINISHED)
        return
    empty = len(table) - table.known
    left_out = f"; {empty:,} are empty, because the model lacks a gene" if empty else ""
    where = f" written to {options.output}" if options.output else ""
    where = f", means of {len(members)} runs,{where}" if len(members) > 1 else where
    if not options.quiet:
        print(f"{count(len(table), 'prediction')}{where}{left_out}", file=sys.stdout if options.output else sys.stderr)


def _predict_design(
    options: argparse.Namespace, members: Sequence[Trained], intervals: Intervals | None, ranks: Ranks, output: Path
) -> None:
    from dglcell.prediction.predict import Ranking, choose_for_design, fitting_batch_of, predict_design, wild_type_of

    design = _design_of(options, members)
    batch_size = options.batch_size or fitting_batch_of(members)
    choose_for_design(members, design, options.precision or PRECISIONS[0])
    if intervals is not None:
        intervals.warn_of_new_genes(design)
    ranking, written = None, count(len(design), "prediction")
    if options.top is not None:
        chosen = options.by or EFFECT, options.top, options.phenotype
        ranking = Ranking.of(*chosen, members, with_intervals=intervals is not None)
        if ranking.by == EFFECT:
            ranking = replace(ranking, wild_type=wild_type_of(members, design, ranking.phenotype))
        written = f"the first {min(options.top, len(design)):,} of {written}"
    # A table that is printed stands alone on standard output.
    to = sys.stdout if options.output else sys.stderr
    report = reporter(options, *[f"{ranks.name}:"] * (ranks.size > 1), file=to)
    rate = predict_design(
        members,
        design,
        output,
        batch_size=batch_size,
        ranking=ranking,
        intervals=intervals,
        ranks=ranks,
        report=report,
        overwrite=options.overwrite,
    )
    if rate is None:
        report(FINISHED)
        return
    where = f" written to {options.output}" if options.output else ""
    report(f"{written}{where}" + (f" ({rate:,.0f} strains/s)" if rate else ""))
