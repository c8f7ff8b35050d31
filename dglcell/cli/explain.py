"""Run ``dglcell explain`` on strains that are named, on a table, or on strains of the test part."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dglcell.cli.arguments import add_device, add_reading, add_run, positive, reporter
from dglcell.cli.outputs import check_output
from dglcell.errors import ConfigError, count
from dglcell.explanations import NODES

if TYPE_CHECKING:
    from dglcell.api import Predictor
    from dglcell.data.strains import Strains

HELP = "explain why a model predicts that strains differ from the wild type"
EPILOG = """\
strains:
  dglcell explain RUN "b0008 b2464"
  dglcell explain RUN b0008 "icd:0.3 b0008"
  dglcell explain RUN genotypes.csv -o explanations.csv
  dglcell explain RUN --top 20 -o explanations.html
  dglcell explain RUN "b0008 b2464" --interaction
Write each strain as the names of its genes, with what is left of a weakened one behind it. A table is read as `predict`
reads it. With --top the strains of the test part are explained whose predictions are farthest from that for the wild
type. If the model sees conditions, give them as --condition NAME=VALUE or in columns of the table.

what is shown:
The difference between the predictions for the strain and for the wild type is split so that the parts sum to it
exactly. First comes what the output depends on directly: the strain's graph, scores of its deleted genes, its flux
balance, measured strains. The part of the graph is then split over the layers and relations that bring it in, over
deleted genes and lost reactions, and over the nodes that are read. The parts describe the model, not the cell.
With --interaction the same is done with what the changes of a strain do together: what the prediction has beyond all
that fewer of them do. Of two genes it is y(both) - y(first) - y(second) + y(wild type).

files:
  -o explanations.csv    one long table; .parquet has the same
  -o explanations.json   networks of the largest shares, for Cytoscape
  -o explanations.html   a page with drawings
  --escher shares.json   shares of reactions, for a map of Escher
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for which strains are explained, and where the explanations go."""
    add_run(parser)
    parser.add_argument(
        "strains", nargs="*", metavar="STRAIN", help='genes of a strain, e.g. "b0008 b2464:0.3"; or a table'
    )
    parser.add_argument("--top", type=positive, metavar="N", help="explain N strains of the test part")
    parser.add_argument(
        "--interaction",
        action="store_true",
        help="explain what two to six changes of a strain do together beyond what fewer of them do",
    )
    parser.add_argument("--edges", action="store_true", help="split what layers bring in over edges, too")
    parser.add_argument("--phenotype", metavar="NAME", help="explain only this phenotype, if there are several")
    parser.add_argument(
        "--output", "-o", type=Path, metavar="FILE", help=".csv, .parquet, .json or .html (default: print it)"
    )
    parser.add_argument("--escher", type=Path, metavar="FILE", help="shares of reactions for a map of Escher, .json")
    parser.add_argument(
        "--nodes",
        type=positive,
        default=NODES,
        metavar="N",
        help=f"nodes, and edges, of each layer that are written for a strain (default: {NODES})",
    )
    add_reading(parser)
    parser.add_argument(
        "--batch-size", type=positive, metavar="N", help="strains per pass (default: as many as fit into memory)"
    )
    add_device(parser)


def explain(options: argparse.Namespace) -> None:
    """Run ``dglcell explain``.

    Raises:
        ConfigError: no strain is given, or both strains and ``--top``; the model cannot be explained; or an output
            would overwrite an input or a file of a run.
    """
    table = _check(options)
    from dglcell.trained_models import find_run

    find_run(options.run_directory)  # before anything is imported that takes seconds
    from dglcell.api import load, runs_in
    from dglcell.explanations import files
    from dglcell.explanations.tables import explain as explain_strains
    from dglcell.explanations.text import show
    from dglcell.files.parquet import check_output as check_format
    from dglcell.machine.devices import check_device, threads
    from dglcell.runs.directory import RunDirectory

    runs = runs_in(options.run_directory)
    given = [path for path in (table, options.checkpoint) if path is not None]
    given += [path for run in runs for path in RunDirectory(run).files()]
    if options.output is not None:
        check_format(options.output, files.SUFFIXES)
        check_output(options.output, "explanations", given)
    if options.escher is not None:
        check_output(options.escher, "shares of reactions", given)
    check_device(options.device)
    with threads(None):
        predictor = load(runs, checkpoint=options.checkpoint, device=options.device)
        report = reporter(options) if options.output is not None else lambda line: None
        settings: dict[str, Any] = {"nodes": options.nodes, "batch_size": options.batch_size, "report": report}
        settings |= {"interaction": options.interaction, "edges": options.edges}
        if options.escher is not None:
            settings["nodes"] = None  # a map shows all reactions
        strains = _strains(options, table, predictor, runs[0])
        found = explain_strains(predictor.members, strains, **settings)
    if options.phenotype is not None:
        found = found.of_phenotype(options.phenotype)
    if options.escher is not None:
        files.write_escher(found, options.escher)
        report(f"shares of reactions written to {options.escher}")
    if options.output is None:
        print(show(found))
    else:
        files.write(found, options.output)
        print(f"{count(found.strains['strain'].nunique(), 'strain')} explained in {options.output}")


def _check(options: argparse.Namespace) -> Path | None:
    """Refuse options that contradict each other, and return the table where one is given.

    Raises:
        ConfigError: as ``explain`` says.
    """
    if bool(options.strains) == (options.top is not None):
        raise ConfigError(
            "which strains shall be explained?",
            got=f"{count(len(options.strains), 'strain')} and --top" if options.strains else "none",
            expected='names of genes such as "b0008 b2464", a table, or --top N',
        )
    paths = [text for text in options.strains if Path(text).suffix or "/" in text]
    paths = [text for text in paths if Path(text).is_file() or Path(text).suffix in TABLES]
    if not paths:
        for text in options.strains:
            _refuse_decimal_comma(text)
        return None
    if len(options.strains) > 1:
        raise ConfigError("a table stands alone", got=" ".join(options.strains), expected="a table, or names of genes")
    return Path(paths[0])


DECIMAL_COMMA = re.compile(r":([0-9]*,[0-9]+(?:e-?[0-9]+)?)(?![\w.:])", re.ASCII)
"""A strength is written so with a decimal comma, which stands between genes here."""


def _refuse_decimal_comma(text: str) -> None:
    """Refuse a strain of the command line whose strength has a decimal comma.

    Raises:
        ConfigError: it has one; the error names it.
    """
    found = DECIMAL_COMMA.search(text)
    if found:
        point = found[1].replace(",", ".")
        raise ConfigError(
            "a strength has a decimal comma",
            got=f"`{found[1]}` in '{text}'",
            expected="a decimal point, because a comma stands between genes here",
            do=f"write `{point}`; if the comma is to stand between genes, write a space in its place",
        )


TABLES = (".csv", ".tsv", ".txt", ".gz", ".parquet", ".xlsx")
"""Words that end so are tables, also where no such file exists."""


def _strains(options: argparse.Namespace, table: Path | None, predictor: Predictor, run: Path) -> Strains:
    """Return the strains that are asked for, with genes of the cell graph."""
    from dglcell.prediction.columns import GenotypeColumns
    from dglcell.prediction.frames import read_strains
    from dglcell.prediction.table import read_genotypes

    member, genes = predictor.members[0], predictor.cell.genes
    columns = GenotypeColumns.of(member, options.columns, options.aliases)
    conditions = dict(options.condition)
    if table is not None:
        return read_genotypes(table, genes, (), columns, conditions=conditions).strains
    if options.top is not None:
        return _farthest(predictor, run, options.top, options.interaction)
    import pandas as pd

    genes_of = [";".join(text.replace(",", " ").replace(";", " ").split()) for text in options.strains]
    frame = pd.DataFrame({"genes": genes_of}, index=options.strains)  # which messages name
    return read_strains(frame, conditions, columns, genes)[2].strains


def _farthest(predictor: Predictor, run: Path, number: int, interaction: bool) -> Strains:
    """Return the strains of the test part whose predictions are farthest from those for the wild type.

    The wild type is that in the conditions of each strain. With ``interaction`` they are those with the largest
    predicted interactions.

    Raises:
        ConfigError: an interaction is asked for, and no strain of the test part has one.
    """
    import numpy as np

    from dglcell.explanations.interactions import MOST_CHANGES, subsets_of
    from dglcell.prediction.columns import GenotypeColumns
    from dglcell.prediction.predict import predict_rows
    from dglcell.prediction.table import GenotypeTable, read_genotypes
    from dglcell.report.run_tables import check_predictions
    from dglcell.runs.directory import RunDirectory

    path = check_predictions(RunDirectory(run), "test")
    strains = read_genotypes(
        path, predictor.cell.genes, (), GenotypeColumns.of(predictor.members[0], ["genes"])
    ).strains

    def predicted(some: Strains) -> list[Any]:
        known = GenotypeTable([], [], some, np.ones(len(some), bool))
        columns = predict_rows(predictor.members, known)
        return [columns[f"predicted_{name}"] for name in predictor.phenotypes]

    if interaction:
        changes = strains.num_deletions
        strains = strains.take(np.flatnonzero((changes >= 2) & (changes <= MOST_CHANGES)))
        if not len(strains):
            raise ConfigError(
                "no strain of the test part has an interaction",
                expected=f"strains that change 2 to {MOST_CHANGES} genes",
                do="name strains, or leave --interaction out",
            )
        subsets = subsets_of(strains)
        change = [subsets.sums(values) for values in predicted(subsets.strains)]
    else:
        wild = strains.with_targets(np.zeros(len(strains.targets), bool))
        wild = wild if strains.conditions else wild.slice(0, 1)
        change = [own - base for own, base in zip(predicted(strains), predicted(wild), strict=True)]
    return strains.take(np.argsort(-np.abs(change).sum(0), kind="stable")[:number])
