"""Implement ``predict`` and ``explain``: what a trained model says of strains, and where that comes from."""

from __future__ import annotations

import argparse
import csv
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dglcell.cli.arguments import (
    DEVICE,
    OVERWRITE,
    READING,
    RUN,
    Add,
    argument,
    check_outputs,
    natural,
    positive,
    reporter,
    verb,
)
from dglcell.errors import ConfigError, aligned, count, printable, shorten
from dglcell.prediction import EFFECT, KINDS, PRECISIONS, RANKINGS, UNKNOWN

if TYPE_CHECKING:
    from dglcell.api import Predictor
    from dglcell.data.strains import Strains
    from dglcell.machine import Ranks
    from dglcell.prediction.predict import Intervals

_GENES = "genes of the design, one name a line (default: all of the model)"
_ACTIVITY = "what is left of each gene of the design, e.g. 0.1,0.3 (default: nothing)"
_WHERE = "output: .csv or .parquet; of a design also a folder (default for a table and --top: print it)"
_WAYS = "best", "network", "baseline", "ensemble"
_WITH = "what predicts: the best on the validation part, or one by name (default: best)"
_INTERVAL = "add the ends of an interval that shall hold this share of measured values, e.g. 0.9"
_BATCH = "strains per forward pass (256, or fewer that fit into memory)"
_PRECISION = "of a design: 32-true, or bf16 for differences of strains (32-true)"


def _activities(text: str) -> tuple[float, ...]:
    """Parse numbers with commas between them, e.g. ``0.1,0.3``."""
    if re.fullmatch(r"0,[0-9]{1,18}", text):
        point, two = text.replace(",", "."), f"0.0{text[1:]}"
        raise argparse.ArgumentTypeError(f"'{text}' has a decimal comma: write {point}, or {two} for two activities")
    try:
        if "_" in text:
            raise ValueError
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{shorten(text, 40)}' is not numbers such as 0.1,0.3,0.5") from None


def _designs(size: int, kind: str) -> Add:
    things = "single genes" if size == 1 else f"{kind} of genes"
    return argument(f"--all-{kind}", dest="designs", action="append_const", const=size, help=f"all {things}")


@verb(
    "predict",
    *RUN,
    argument("genotypes", type=Path, nargs="?", metavar="CSV", help="table of genotypes"),
    *(_designs(*kind) for kind in KINDS.items()),
    argument("--genes", type=Path, metavar="FILE", help=_GENES),
    argument("--activity", type=_activities, metavar="S,S,…", help=_ACTIVITY),
    argument("--start", type=natural, metavar="N", help="number of the design's first strain (default: 0)"),
    argument("--limit", type=positive, metavar="N", help="largest number of strains (default: all)"),
    *READING,
    argument("--unknown", default=UNKNOWN[0], choices=UNKNOWN, help="rows with genes that the model lacks (refuse)"),
    argument("--top", type=positive, metavar="N", help="only the first N strains of a ranking, written or printed"),
    argument("--by", choices=RANKINGS, help="the ranking (default: effect)"),
    argument("--phenotype", metavar="NAME", help="phenotype to rank by, if there are several"),
    argument("--output", "-o", type=Path, metavar="FILE", help=_WHERE),
    OVERWRITE,
    argument("--with", dest="predict_with", default="best", choices=_WAYS, help=_WITH),
    argument("--interval", type=float, metavar="C", help=_INTERVAL),
    argument("--threads", type=positive, metavar="N", help="threads of the processor (default: the allotted cores)"),
    argument("--batch-size", type=positive, metavar="N", help=_BATCH),
    DEVICE,
    argument("--precision", choices=PRECISIONS, help=_PRECISION),
)
def predict(options: argparse.Namespace) -> None:
    """Predict phenotypes of a table of genotypes, or of all single genes, pairs or triples.

    a table:
      dglcell predict RUN genotypes.csv -o predictions.csv
    Write the deleted genes into columns gene_1, gene_2, …, or into one column `genes` separated by `;`. Otherwise the
    columns of the training table are read, or those in --columns. The output has the same rows, and a column
    predicted_PHENOTYPE for each phenotype. If a row cannot be predicted, the error names its line.

    activities and covariates:
      dglcell predict RUN genotypes.csv --covariate medium=glycerol -o out.csv
    Write what is left of a weakened gene behind it, b0008:0.3, or into columns activity_1, activity_2, …, or into one
    column `activities`. A covariate that the model sees, such as the growth medium, has a column of its name, or of its
    name in training. --covariate gives one value for all rows. A row without a gene is then the wild type.

    several seeds, and how sure:
      dglcell predict runs/EXPERIMENT genotypes.csv --interval 0.9 -o out.csv
    Of an experiment's folder all seeds predict: predicted_PHENOTYPE is their mean, and sd_PHENOTYPE their standard
    deviation. Between low_PHENOTYPE and high_PHENOTYPE are the measured values of 90 % of strains like those of the
    validation part. Classes have a calibrated probability_PHENOTYPE instead.

    a design, and the next experiments:
      dglcell predict RUN --all-triples --genes genes.txt -o predictions.parquet
      dglcell predict RUN --all-singles --activity 0,0.1,0.3,0.5 -o doses.csv
      dglcell predict runs/EXPERIMENT --all-pairs --top 200 --by uncertain
    The rows are in lexicographic order of the list, each gene with each activity, or with --top in the order of a
    ranking: by the distance from the wild type, or by the standard deviation over seeds or the width of the interval.

    a large design, with one process or several, each with a GPU where --device is cuda:
      dglcell predict RUN --all-triples -o triples
      torchrun --nproc-per-node 8 --no-python \\
          dglcell predict RUN --all-triples -o triples --device cuda
    An output without a suffix is a folder of Parquet files, which are read as one table. A command that was stopped
    continues when it is given again. With --overwrite, parts of other predictions are replaced.
    """
    from dglcell.files.atomic import check_output
    from dglcell.machine import Ranks, check_device, threads
    from dglcell.trained_models import find_run

    _check(options)
    if options.output is not None:
        check_output(options.output, may_be_folder=bool(options.designs) and options.top is None)
    # A design that was stopped goes on with its own parts, and `rows_of_parts` tells what is its own.
    to_folder = bool(options.designs and options.output is not None and not options.output.suffix)
    check_outputs(options, None if to_folder else options.output)
    find_run(options.run_directory)  # before anything is imported that takes seconds
    ranks = Ranks.of()
    if ranks.size > 1 and not to_folder:
        do = "start one process; or predict a design with an output without a suffix, e.g. `-o triples`"
        raise ConfigError("several processes share no table or file, but a folder of parts", got=ranks.name, do=do)
    from dglcell.api import load
    from dglcell.prediction.predict import Intervals

    check_device(device := options.device)
    if device == "cuda" and ranks.size > 1:  # a GPU for each process of a machine that sees several
        import torch

        device = f"cuda:{ranks.local % torch.cuda.device_count()}"
    with threads(options.threads):
        way = {"checkpoint": options.checkpoint, "predict_with": options.predict_with}
        predictor = load(options.run_directory, device=device, **way)
        intervals = None if options.interval is None else Intervals.of(predictor.members, options.interval)
        if not options.designs:
            _predict_table(options, predictor, intervals)
        elif options.output is not None:
            _predict_design(options, predictor, intervals, ranks, options.output)
        else:
            with tempfile.TemporaryDirectory() as folder:
                first = Path(folder) / "first.csv"
                _predict_design(options, predictor, intervals, ranks, first)
                with open(first, newline="", encoding="utf-8") as file:
                    rows = list(csv.reader(file))
            texts = [i for i, name in enumerate(rows[0]) if name.startswith(("gene_", "name_", "predicted_by"))]
            print("\n".join(line.rstrip() for line in aligned(rows, texts)))


def _check(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other."""
    wanted = [str(options.genotypes)] if options.genotypes is not None else []
    wanted += [f"--all-{KINDS[size]}" for size in options.designs or []]
    if len(wanted) != 1:
        expected = "a CSV, or --all-singles, --all-pairs or --all-triples"
        raise ConfigError("what shall be predicted?", got=" and ".join(wanted) or "nothing", expected=expected)
    of_designs = "genes", "activity", "start", "limit", "top", "precision"
    stray = [f"--{name}" for name in of_designs if getattr(options, name) is not None]
    if stray and not options.designs:
        do = "leave them out, or ask for --all-singles, --all-pairs or --all-triples"
        raise ConfigError("some options are of designs, and this is a table", got=", ".join(stray), do=do)
    names = [name for name, _ in options.covariate]
    if len(set(names)) < len(names):
        raise ConfigError("--covariate gives a covariate twice", got=", ".join(names), expected="each covariate once")
    if options.designs:
        from dglcell.files.atomic import import_pyarrow

        import_pyarrow()  # parts of a design are Parquet; a missing pyarrow is reported at once
        if options.output is None and options.top is None:
            expected = "--output FILE: a design is written in parts"
            do = "or print the first ones of a ranking: --top N"
            raise ConfigError("where shall the predictions go?", expected=expected, do=do)
    if options.top is None and (options.by or options.phenotype):
        raise ConfigError("how many strains of the ranking are wanted?", expected="--top N")


def _predict_table(options: argparse.Namespace, predictor: Predictor, intervals: Intervals | None) -> None:
    from dglcell.prediction.columns import GenotypeColumns
    from dglcell.prediction.predict import predict_table
    from dglcell.prediction.table import write_table

    members = predictor.members
    how = GenotypeColumns.of(members[0], options.columns, options.aliases, options.unknown)
    table = how.read(options.genotypes, predictor.cell.genes, dict(options.covariate))
    found = predict_table(members, table, batch_size=options.batch_size, intervals=intervals)
    write_table(options.output, table.frame.assign(**found))
    where = f", means of {len(members)} runs," if len(members) > 1 else ""
    where += f" written to {options.output}" if options.output else ""
    empty = int((~table.is_known).sum())
    left_out = f"; {empty:,} {'is' if empty == 1 else 'are'} empty, because the model lacks a gene" if empty else ""
    _report(options)(f"{count(len(table.frame), 'prediction')}{where}{left_out}")


def _report(options: argparse.Namespace, *words: str) -> Callable[[str], None]:
    """Return what prints progress; a table that is printed stands alone on standard output."""
    return reporter(options, *words, file=sys.stdout if options.output else sys.stderr)


def _predict_design(
    options: argparse.Namespace, predictor: Predictor, intervals: Intervals | None, ranks: Ranks, output: Path
) -> None:
    from dglcell.prediction.columns import GenotypeColumns
    from dglcell.prediction.design import Design, every_gene, read_genes
    from dglcell.prediction.predict import Ranking, choose_for_design, predict_design

    members, known = predictor.members, predictor.cell.genes
    columns = GenotypeColumns.of(members[0])
    design = Design.of(
        every_gene(known) if options.genes is None else read_genes(options.genes, known),
        options.designs[0],
        options.start or 0,
        options.limit,
        activities=options.activity or (),
        background=columns.wild_type(known, dict(options.covariate)),
        complete=columns.complete,
    )
    choose_for_design(members, design, options.precision or PRECISIONS[0])
    if intervals is not None:
        intervals.warn_of_new_genes(design)
    ranking, written = None, count(len(design), "prediction")
    if options.top is not None:
        chosen = options.by or EFFECT, options.top, options.phenotype
        ranking = Ranking.of(members, design, *chosen, intervals=intervals)
        written = f"the first {min(options.top, len(design)):,} of {written}"
    report, size = _report(options, *[f"{ranks.name}:"] * (ranks.size > 1)), options.batch_size
    how: dict[str, Any] = {"ranking": ranking, "intervals": intervals, "ranks": ranks, "report": report}
    rate = predict_design(members, design, output, batch_size=size, overwrite=options.overwrite, **how)
    if rate is None:
        report("its share is finished; others are still at work")
        return
    where = f" written to {options.output}" if options.output else ""
    report(f"{written}{where}" + (f" ({rate:,.0f} strains/s)" if rate else ""))


_STRAIN = 'genes of a strain, divided by blanks or `;`, e.g. "b0008 b2464:0.3"; or a table'
_EXPLAINED = "table of subsets and sources, .csv (default: print them)"


@verb(
    "explain",
    *RUN,
    argument("strains", nargs="+", metavar="STRAIN", help=_STRAIN),
    argument("--output", "-o", type=Path, metavar="FILE", help=_EXPLAINED),
    OVERWRITE,
    *READING,
    DEVICE,
)
def explain(options: argparse.Namespace) -> None:
    """Say what the predicted change of a strain comes from.

    strains:
      dglcell explain RUN "b0008 b2464"
      dglcell explain RUN b0008 "icd:0.3 b0008"
      dglcell explain RUN genotypes.csv -o found.csv
    Write each strain as the names of its genes, with what is left of a weakened one behind it. A table is read as
    `predict` reads it. If the model sees covariates, give them as --covariate NAME=VALUE or in columns of the table.

    what is shown:
    The model predicts every subset of the changes of a strain. The smallest subset with nine tenths of the whole change
    is responsible. The interaction of a subset is what it does beyond all smaller ones inside it. The model's own
    forward then splits the change over its terms, relations, changed genes and nodes. This is of the prediction, not of
    biology.
    """
    from dglcell.trained_models import find_run

    table = _table(options)
    find_run(options.run_directory)  # before anything is imported that takes seconds
    from dglcell.api import load
    from dglcell.explain import explain, show, split, with_subsets
    from dglcell.files.atomic import atomic_file, check_output, no_formula
    from dglcell.machine import threads

    if options.output is not None:
        check_output(options.output, (".csv",))
    check_outputs(options, options.output)
    splits, reason = None, ""
    with threads(None):
        how = {"checkpoint": options.checkpoint, "device": options.device}
        predictor = load(options.run_directory, predict_with="network", **how)
        strains = _strains(options, table, predictor)
        found = explain(predictor.members, strains)
        try:
            splits = split(predictor.members, strains)
        except ConfigError as error:
            reason = f"\n{error}"
    if options.output is None:
        print(printable(show(found, predictor.cell.genes, splits)))
    else:
        frame = with_subsets(splits, found).map(lambda cell: no_formula(cell) if isinstance(cell, str) else cell)
        with atomic_file(options.output) as partial:
            frame.to_csv(partial, index=False)
        print(f"{count(found['strain'].nunique(), 'strain')} explained in {options.output}")
    if reason:
        print(printable(reason))


def _table(options: argparse.Namespace) -> Path | None:
    """Return the table where one is given in place of strains; some suffixes say that even without such a file."""
    suffixes = ".csv", ".tsv", ".txt", ".gz", ".parquet", ".xlsx"
    paths = [text for text in options.strains if Path(text).suffix or "/" in text]
    paths = [text for text in paths if Path(text).is_file() or Path(text).suffix in suffixes]
    if not paths:
        return None
    if len(options.strains) > 1:
        raise ConfigError("a table stands alone", got=" ".join(options.strains), expected="a table, or names of genes")
    return Path(paths[0])


def _strains(options: argparse.Namespace, table: Path | None, predictor: Predictor) -> Strains:
    """Return the strains that are asked for, with genes of the cell graph."""
    import pandas as pd

    from dglcell.prediction.columns import GenotypeColumns

    genes = predictor.cell.genes
    given: Path | pd.DataFrame | None = table
    if given is None:
        genes_of = [re.sub(r",?\s+", ";", text.strip()) for text in options.strains]  # names may have commas: ade5,7
        given = pd.DataFrame({"genes": genes_of}, index=options.strains)  # which messages name
    how = GenotypeColumns.of(predictor.members[0], options.columns, options.aliases)
    return how.read(given, genes, dict(options.covariate)).strains
