"""Run ``dglcell explain`` on strains that are named, or on a table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dglcell.cli.arguments import DEVICE, OVERWRITE, READING, RUN, argument, check_outputs, verb
from dglcell.errors import ConfigError, count, printable

if TYPE_CHECKING:
    from dglcell.api import Predictor
    from dglcell.data.strains import Strains
    from dglcell.graph.vocabulary import Vocabulary

TABLES = (".csv", ".tsv", ".txt", ".gz", ".parquet", ".xlsx")
"""Words that end so are tables, also where no such file exists."""


_STRAIN = 'genes of a strain, e.g. "b0008 b2464:0.3"; or a table'
_OUTPUT = "table of subsets and sources, .csv (default: print them)"


@verb(
    "explain",
    *RUN,
    argument("strains", nargs="+", metavar="STRAIN", help=_STRAIN),
    argument("--output", "-o", type=Path, metavar="FILE", help=_OUTPUT),
    argument("--picture", type=Path, metavar="FILE", help="bars of the largest changes, .png"),
    OVERWRITE,
    *READING,
    DEVICE,
)
def explain(options: argparse.Namespace) -> None:
    """Say what the predicted change of a strain comes from.

    strains:
      dglcell explain RUN "b0008 b2464"
      dglcell explain RUN b0008 "icd:0.3 b0008"
      dglcell explain RUN genotypes.csv -o found.csv --picture found.png
    Write each strain as the names of its genes, with what is left of a weakened one behind it. A table is read as
    `predict` reads it. If the model sees covariates, give them as --covariate NAME=VALUE or in columns of the table.

    what is shown:
    The model predicts every subset of the changes of a strain. The smallest subset with nine tenths of the whole change
    is responsible. The interaction of a subset is what it does beyond all smaller ones inside it. The model's own
    forward then splits the change over its terms, relations, changed genes and nodes. This is of the prediction, not of
    biology.
    """
    table = _table(options)
    from dglcell.trained_models import find_run

    find_run(options.run_directory)  # before anything is imported that takes seconds
    from dglcell.api import load
    from dglcell.explain.tables import draw, show, split, with_subsets
    from dglcell.explain.tables import explain as explain_strains
    from dglcell.files.atomic import atomic_file, no_formula
    from dglcell.files.parquet import check_output as check_format
    from dglcell.machine import threads
    from dglcell.report.pictures import save

    for path, suffix in ((options.output, ".csv"), (options.picture, ".png")):
        if path is not None:
            check_format(path, (suffix,))
    check_outputs(options, options.output, options.picture)
    splits, reason = None, None
    with threads(None):
        run, device = options.run_directory, options.device
        predictor = load(run, checkpoint=options.checkpoint, device=device, predict_with="network")
        strains = _strains(options, table, predictor)
        found = explain_strains(predictor.members, strains)
        try:
            splits = split(predictor.members, strains)
        except ConfigError as error:
            if options.picture is not None:
                raise
            reason = error
    if options.picture is not None and splits is not None:
        save(draw(splits), options.picture)
        print(f"the largest changes are drawn in {options.picture}")
    if options.output is None:
        print(printable(show(found, predictor.cell.genes, splits)))
    else:
        table_of_all = with_subsets(splits, found)
        with atomic_file(options.output) as partial:
            table_of_all.map(lambda cell: no_formula(cell) if isinstance(cell, str) else cell).to_csv(
                partial, index=False
            )
        print(f"{count(found['strain'].nunique(), 'strain')} explained in {options.output}")
    if reason is not None:
        print(printable(f"\n{reason}"))


def _table(options: argparse.Namespace) -> Path | None:
    """Return the table where one is given in place of strains."""
    paths = [text for text in options.strains if Path(text).suffix or "/" in text]
    paths = [text for text in paths if Path(text).is_file() or Path(text).suffix in TABLES]
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
        genes_of = [";".join(genes_in(text, genes)) for text in options.strains]
        given = pd.DataFrame({"genes": genes_of}, index=options.strains)  # which messages name
    how = GenotypeColumns.of(predictor.members[0], options.columns, options.aliases)
    return how.read(given, genes, dict(options.covariate)).strains


def genes_in(text: str, genes: Vocabulary) -> list[str]:
    """Return the genes of a strain, between which are blanks, semicolons or commas; a known name may have commas."""
    from dglcell.data.changes import split_activity

    found = []
    for word in text.replace(";", " ").split():
        parts = word.split(",")
        while parts:
            ends = range(len(parts), 1, -1)
            whole = (n for n in ends if genes.find(split_activity(",".join(parts[:n]))[0]) in genes)
            number = next(whole, 1)
            found.append(",".join(parts[:number]))
            parts = parts[number:]
    return [*filter(None, found)]
