"""Implement the verbs that make inputs of trainings, train models and use them: call the package and print.

Heavy imports happen inside the verbs, so that ``dglcell --help`` answers at once.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from dataclasses import fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from dglcell.cli.arguments import (
    CONFIGURATION,
    FILE_HELP,
    OVERWRITE,
    RUN,
    Add,
    argument,
    check_outputs,
    load,
    overrides,
    pair,
    positive,
    reporter,
    verb,
)
from dglcell.errors import ConfigError, MissingDependencyError, count, printable
from dglcell.training.signals import StopSignals, is_rank_zero

if TYPE_CHECKING:
    from dglcell.config.experiment import Config


def _words(name: str, metavar: str, text: str) -> Add:
    """Declare an option that takes several words and may be given again."""
    return argument(name, nargs="+", action="extend", default=[], metavar=metavar, help=text)


_CELL = "yeast (default), ecoli-core, ecoli, or a metabolic model by name or path"
_MODEL = "hetero_cell or set_operator, with settings for it (default: by the labels)"
_ACTIVITIES = "what is left of each gene (default: by name; none: no COLUMN)"
_COVARIATES = "media, doses, alleles (default: by name; none: no COLUMN)"
_ABSENT = 'cells that mean "not measured", such as ND; --na-values=-9 where a word begins with a minus sign'
_CONTROLS = "names in the place of a gene that stand for no deletion, as those of controls: ctrl, 'control_*'"


@verb(
    "init",
    argument("file", type=Path, metavar="NAME", help="name of the experiment; writes NAME.yaml"),
    argument("--table", type=Path, required=True, metavar="FILE", help="CSV, TSV, .xlsx or Parquet, a row a strain"),
    argument("--cell", default="yeast", help=_CELL),
    argument("--split", default="random", metavar="KIND", help="kind of split (default: random)"),
    argument("--model", metavar="NAME", help=_MODEL),
    argument("--genes", nargs="+", default=[], metavar="COLUMN", help="columns of genes (default: by name)"),
    argument("--phenotypes", nargs="+", default=[], metavar="COLUMN", help="default: others with numbers"),
    argument("--activities", nargs="*", metavar="COLUMN", help=_ACTIVITIES),
    argument("--covariates", nargs="*", metavar="COLUMN", help=_COVARIATES),
    argument("--aliases", metavar="FILE", help="table of other names of genes, such as common ones"),
    _words("--na-values", "WORD", _ABSENT),
    _words("--ignore", "NAME", _CONTROLS),
    argument("--write-clean", type=Path, metavar="FILE", help="write a copy without faults, and read that"),
    argument("--fetch", action="store_true", help="download missing files of the cell graph, and names of its genes"),
    OVERWRITE,
)
def init(options: argparse.Namespace) -> None:
    """Write the file of your own experiment.

      dglcell init mine --table strains.csv --cell textbook
      dglcell init mine --table strains.csv --split gene_disjoint
    The command reads the strains, compares them with the cell graph, chooses settings, and writes the reason for each
    above it. Columns of activities, media, covariates, alleles and guides are found by their names. Genes may have
    other names than systematic ones. All faults of the table are listed by line. With --write-clean FILE, a copy
    without them is written, and the experiment reads the copy.
    """
    from dglcell.config.read import PACKAGED
    from dglcell.new_experiment.experiment import write_experiment
    from dglcell.new_experiment.table import Wanted

    file = options.file.with_name(options.file.name.removesuffix(".yaml") + ".yaml")
    if (PACKAGED / file.name).is_file():
        raise ConfigError(f"'{file.name}' is a file that experiments extend", do="choose another name")
    check_outputs(options, file, options.write_clean)
    given = {one.name: getattr(options, one.name) for one in fields(Wanted)}
    said = write_experiment(Wanted(**{**given, "file": file}))
    if not options.quiet:
        print(f"{said}\n\n{file} is written. Train with `dglcell train {quote(str(file))}`.")


@verb("data build", *CONFIGURATION, argument("--overwrite", action="store_true", help="build it again if it exists"))
def data_build(options: argparse.Namespace) -> None:
    """Build the store of an experiment."""
    config = load(options)
    from dglcell.data.store import describe_store
    from dglcell.training.prepare import build

    print(describe_store(build(config, options.command, overwrite=options.overwrite)))


@verb(
    "data stats",
    argument("store", type=Path, metavar="STORE"),
    argument("--verify", action="store_true", help="only check every column of it against its hash"),
)
def data_stats(options: argparse.Namespace) -> None:
    """Describe a store: phenotypes, deletions, genes, provenance."""
    from dglcell.data.store import Store, format_stats, verify_store

    if not options.verify:
        print(format_stats(Store(options.store)))
        return
    store = verify_store(options.store)
    print(f"{options.store}: {count(len(store), 'strain')}, all columns and hashes are right ({store.sha256[:12]})")


@verb(
    "data fetch",
    argument("--all", type=Path, dest="config", metavar="FILE", help="experiment whose files to download"),
    argument("--addresses", action="store_true", help="only print the addresses of the files"),
    argument("sources", nargs="*", metavar="NAME", help="screen in `dglcell data list`, or path of a published file"),
)
def data_fetch(options: argparse.Namespace) -> None:
    """Download published files into the raw folder, and check them.

    --all downloads everything that an experiment reads: screens, networks, gene sets, models. A file is kept only if it
    is complete, with the right size and hash; one that exists is only checked. If no hash is published, the file's own
    is printed.

      dglcell data fetch --all conf/101-collins2007/set_operator_random.yaml
      dglcell data fetch kuzmin2018 genes/essential_genes_reference.txt.gz
    """
    from dglcell.config.published import fetch_all, format_addresses, named, needs
    from dglcell.files.atomic import raw_folder

    if bool(options.sources) == bool(options.config):
        got = "names and an experiment" if options.config else "nothing"
        raise ConfigError("what shall be fetched?", got=got, expected="names, or --all EXPERIMENT.yaml")
    raw, wanted = None, [need for name in options.sources for need in named(name)]
    if options.config:
        config = load(argparse.Namespace(**vars(options), overrides=[]))
        raw, wanted = config.paths.raw, needs(config)
        if not wanted:
            print(f"{options.config}: it needs no file that is published")
    if options.addresses:
        print(format_addresses(wanted))
        return
    for text in fetch_all(wanted, raw_folder(raw)):
        print(text, flush=True)


@verb("data list")
def data_list(_: argparse.Namespace) -> None:
    """List screens, networks, gene sets and metabolic models by name."""
    from dglcell.config.published import format_catalogue

    print(format_catalogue(), end="")


@verb(
    "graph describe",
    argument("config", type=Path, metavar="FILE|RUN", help="experiment, run directory or trained model"),
    overrides("keys of an experiment, e.g. cell.metabolism=false"),
)
def graph_describe(options: argparse.Namespace) -> None:
    """Describe the cell graph of an experiment or a run."""
    from dglcell.graph.cell import build_cell, describe
    from dglcell.runs import RunDirectory
    from dglcell.trained_models import cell_of_run, find_model

    run = options.config if options.config.exists() else find_model(str(options.config))
    if run is not None and run.is_dir():
        if options.overrides:
            what, do = f"run '{options.config}' has the cell graph it was trained on", "leave the overrides out"
            raise ConfigError(what, got=" ".join(options.overrides), do=f"{do}, or describe an experiment's file")
        cell = cell_of_run(RunDirectory(run))
    else:
        config = load(options)
        cell = build_cell(config.cell, config.paths.raw)
    print(printable(describe(cell)))


@verb("config show", argument("config", type=Path, nargs="?", metavar="FILE", help=FILE_HELP), overrides())
def config_show(options: argparse.Namespace) -> None:
    """Print an experiment with all defaults, or list the experiments that have names."""
    from dglcell.config.read import named_experiments, to_yaml

    if options.config is not None:
        print(to_yaml(load(options, look=True)), end="")
        return
    for name, description in named_experiments().items():
        print(name)
        if description:
            print(textwrap.fill(description, 80, initial_indent="    ", subsequent_indent="    "))


@verb("config validate", *CONFIGURATION)
def config_validate(options: argparse.Namespace) -> None:
    """Check an experiment without running it."""
    config = load(options)
    print(f"{options.config}: valid; the run directory will be {config.run_directory}")


_ABLATION = "afterwards also train the same model without messages, for N epochs, and show it in the table"


@verb("train", *CONFIGURATION, argument("--without-messages", type=positive, metavar="N", help=_ABLATION))
def train(options: argparse.Namespace) -> None:
    """Train an experiment, or continue it where it stopped.

    The command builds the store if it does not exist. The run directory is RUNS/EXPERIMENT/seed-SEED. If it
    exists, the run continues from its last checkpoint. With resume=never this is an error, and resume=PATH
    starts from another checkpoint.

    With --without-messages the command then trains the same model without a round of messages (`model.layers=0`), with
    the same seed and split. Its run is RUNS/EXPERIMENT-without-messages. From then on its scores stand among those of
    the baselines, also where the experiment is evaluated again.
    """
    # Signals are handled from here on, because imports alone take seconds.
    with StopSignals() as signals:
        config = load(options)
        if options.without_messages:
            _check_ablation(config, options.without_messages)
        if config.tracking.wandb != "disabled" and is_rank_zero() and find_spec("wandb") is None:
            do = "pip install 'dglcell[wandb]', or set `tracking.wandb: disabled`"
            raise MissingDependencyError("`tracking.wandb` needs the package wandb", do=do)
        signals.requeue = config.slurm.requeue
        with signals.noted():  # torch ends the process where a signal raises an error within its own imports
            from dglcell.files.untrusted import read_json
            from dglcell.report.page import format_expected, format_results_table, lines_below, strongest
            from dglcell.training.run import train as run
            from dglcell.training.run import train_ablation

        result = run(config, options.command, signals)
        rows, directory = result.rows, result.directory
        if options.without_messages:
            ablation = train_ablation(config, options.without_messages, options.command, signals)
            rows = [row for row in rows if row.model not in {one.model for one in ablation}] + ablation
    if not is_rank_zero():
        return
    predicts = {one["name"] for one in read_json(directory.results).get("predicts", {}).values()}
    shown = rows if options.verbose else strongest(rows, predicts)
    quoted = quote(str(directory.path))
    others = f" All {len(rows)} rows: `dglcell evaluate {quoted}`" if len(shown) < len(rows) else ""
    print(f"\n{format_results_table(rows, color=sys.stdout.isatty(), shown=shown)}{others}")
    for sentence in lines_below(rows, config.split.kind):
        print(printable(sentence))
    expected = config.experiment.expected
    if expected is not None and not options.overrides and rows:
        print(f"\n{format_expected(rows, expected.metric, expected.value, expected.tolerance)}")
    print(f"\nreport   {directory.page}" if config.plot else f"\nrun      {directory.path}")
    if not options.quiet:
        print(f"predict  dglcell predict {quoted} GENOTYPES.csv\nexplain  dglcell explain {quoted} 'GENE_1 GENE_2'")


def _check_ablation(config: Config, epochs: int) -> None:
    """Refuse an ablation that cannot be trained, before the run is trained."""
    from dglcell.training.run import without_messages

    ablation = without_messages(config, epochs)
    if config.trainer.devices * config.trainer.num_nodes > 1:
        what = "`--without-messages` trains again in the same process, so that it works with a single device only"
        got = f"`trainer.devices: {config.trainer.devices}`, `trainer.num_nodes: {config.trainer.num_nodes}`"
        keys = f"experiment.name={ablation.experiment.name} model.layers=0 cell.lose_blocked=false baselines=false "
        keys += f"trainer.epochs={epochs} trainer.checkpoint={ablation.trainer.checkpoint}"
        do = f"leave it out, and train FILE a second time with `{keys}`"
        raise ConfigError(what, got=got, do=do)


@verb(
    "tune",
    *CONFIGURATION,
    argument("--space", type=Path, metavar="FILE", required=True, help="YAML file of keys and their values"),
    argument("--trials", type=positive, default=20, metavar="N", help="number of trials (default: 20)"),
)
def tune(options: argparse.Namespace) -> None:
    """Search for the best values of some keys, judged on the validation part.

    The file of --space names keys and the values to search:

      optimizer.lr: {low: 1.0e-4, high: 1.0e-2, log: true}
      model.hidden: [32, 64, 128]

    Each trial is a training of its own. Its score is the Pearson correlation (average precision for classes) on the
    validation part. The command writes RUNS/EXPERIMENT-tuning/trials.csv and best.yaml, an experiment with the best
    values. Given again it continues, and given several times at once it runs trials in parallel. It needs optuna: pip
    install 'dglcell[tune]'.
    """
    from dglcell.config.read import experiment_file
    from dglcell.training.tuning import TABLE, Search, read_space

    search = Search.of(experiment_file(options.config), options.overrides, read_space(options.space))
    best = search.run(options.trials, options.command, reporter(options))
    print(f"\ntrials   {best.with_name(TABLE)}\nbest     {best}\n\nTrain with `dglcell train {quote(str(best))}`.")


_PAIR = partial(pair, form="MODEL_PHENOTYPE=MEASURED_PHENOTYPE")
_PHENOTYPE = "with --on: compare phenotype A of the model with B of these strains (default: same names)"


@verb(
    "evaluate",
    *RUN,
    argument("--on", type=Path, metavar="FILE", help="experiment whose strains to evaluate on"),
    argument("--phenotype", type=_PAIR, action="append", metavar="A=B", help=_PHENOTYPE),
    overrides("with --on: keys of that experiment"),
)
def evaluate(options: argparse.Namespace) -> None:
    """Evaluate a trained model and the baselines on its split.

    With --on, they are evaluated on the strains of another experiment, of which you can set keys. Strains of the
    training are left out. This tests a model on a screen that it has not seen:

      dglcell evaluate runs/quickstart/seed-0
      dglcell evaluate runs/101-collins2007/random/seed-0 \\
          --on conf/102-costanzo2016/random.yaml \\
          --phenotype s_score=digenic_interaction
    """
    from dglcell.trained_models import find_run

    run = find_run(options.run_directory)  # before anything is imported that takes seconds
    from dglcell.machine import threads
    from dglcell.report.page import format_results_table, lines_below

    do = "name the experiment with --on FILE"
    if options.on is None and options.phenotype:
        raise ConfigError("--phenotype is given without --on", do=do)
    if options.on is None and options.overrides:
        raise ConfigError("keys are given without --on", got=" ".join(options.overrides), do=do)
    below: list[str] = []
    with threads(None):
        if options.on is None:
            from dglcell.report.run_files import read_run_config
            from dglcell.runs import RunDirectory
            from dglcell.training.evaluate import evaluate_run

            rows = evaluate_run(run, options.checkpoint)
            below = lines_below(rows, read_run_config(RunDirectory(run)).split.kind)
        else:
            from dglcell.api import load as load_run
            from dglcell.prediction.measured import rows_on

            members = load_run(options.run_directory, checkpoint=options.checkpoint).members
            rows = rows_on(members, options.on, options.overrides, dict(options.phenotype or ()))
    print(format_results_table(rows, color=sys.stdout.isatty()))
    for sentence in below:
        print(f"\n{printable(sentence)}")


_RESULTS = "file of results (default: RUNS/EXPERIMENT/baselines.json)"


@verb("baselines", *CONFIGURATION, argument("--output", "-o", type=Path, metavar="FILE", help=_RESULTS), OVERWRITE)
def baselines(options: argparse.Namespace) -> None:
    """Fit the baselines of an experiment without training its model.

    The baselines are fitted on the split of the experiment, as in a training. Kernel ridge also uses networks that you
    add to the cell graph:

      dglcell baselines conf/101-collins2007/random.yaml
      dglcell baselines conf/101-collins2007/random.yaml \\
          'cell.networks.complexes={source: cyc2008_complexes}'
    """
    check_outputs(options, options.output)
    config = load(options)
    from dglcell.report.page import format_results_table, left_out_lines
    from dglcell.training.evaluate import evaluate_baselines

    rows, found = evaluate_baselines(config, options.output, options.command)
    print(f"\n{format_results_table(rows, color=sys.stdout.isatty())}\n")
    print("\n".join(left_out_lines(found.left_out)))


_NAME = "a model's name, or the path of its folder; a run with --output"
_LIMIT = "what users should know; may be given again"
_STRAINS = "leave out measured phenotypes of validation and test strains"


@verb(
    "models",
    argument("name", nargs="?", metavar="NAME", help=_NAME),
    argument("--output", "-o", type=Path, metavar="MODEL", help="folder of the new model"),
    argument("--organism", metavar="TEXT", help="whose cell it is"),
    argument("--licence", metavar="TEXT", help="licence of the weights"),
    argument("--limit", dest="limits", action="append", metavar="TEXT", help=_LIMIT),
    argument("--description", metavar="TEXT", help="what it predicts (default: as in the experiment)"),
    OVERWRITE,
    argument("--without-strains", action="store_true", help=_STRAINS),
)
def models(options: argparse.Namespace) -> None:
    """List trained models that predict at once, show the card of one, or make one of a run.

    A model's name can stand wherever a run directory can:

      dglcell models
      dglcell models ecoli-core
      dglcell predict ecoli-core genotypes.csv

    With --output a finished run is written as a trained model, a folder. It has what predicts, the scores and a card.
    If the output is an earlier model, its card says what you do not give.

      dglcell models runs/mine/seed-0 -o models/mine --organism 'S. cerevisiae' \\
          --licence 'CC BY 4.0' --limit 'It was trained on pairs of genes.'
      dglcell predict models/mine genotypes.csv
    """
    from dglcell.trained_models import find_run, format_card, format_models, list_models

    if options.output is None:
        name = options.name
        print(printable(format_models(list_models()) if name is None else format_card(name, find_run(name))))
        return
    if options.name is None:
        raise ConfigError("which run shall be a trained model?", expected="dglcell models RUN --output MODEL")
    from dglcell.prediction.export import ABOUT, export

    check_outputs(options, options.output, folders=True)
    about = {name: getattr(options, name) for name in ABOUT}
    export(Path(options.name), options.output, about, strains=not options.without_strains)
    size = sum(path.stat().st_size for path in options.output.rglob("*") if path.is_file())
    print(f"{options.output} written, {size:,} bytes")


_PAGE = "page (default: RUN/report.html; for several: comparison.html)"


@verb(
    "report",
    argument("run_directories", nargs="+", type=Path, metavar="RUN", help="run directory of a finished run"),
    argument("--output", "-o", type=Path, metavar="FILE", help=_PAGE),
    OVERWRITE,
)
def report(options: argparse.Namespace) -> None:
    """Write the report of a finished run, or compare several, on one HTML page.

    For one run, it writes report.html and the picture report.png into the run directory; with --output only the page.
    For several runs, the page shows means and standard deviations over the runs of each experiment, and a CSV file next
    to it has these numbers.
    """
    from dglcell.report.comparison import write_comparison
    from dglcell.report.page import write_report
    from dglcell.runs import RunDirectory
    from dglcell.trained_models import find_run

    several = len(options.run_directories) > 1
    output = options.output or (Path("comparison.html") if several else None)
    check_outputs(options, output, output.with_suffix(".csv") if output and several else None)
    paths = [find_run(path) for path in options.run_directories]
    if output is None and RunDirectory(paths[0]).card.is_file():
        raise ConfigError(f"nothing is written into the trained model '{paths[0]}'", do="name the page: --output FILE")
    print(write_comparison(paths, output) if several and output else write_report(paths[0], output))


_FOLDER = "folder of runs (default: runs)"


@verb("runs", argument("folder", nargs="?", type=Path, default=Path("runs"), help=_FOLDER))
def runs(options: argparse.Namespace) -> None:
    """List runs with their state, epochs and scores."""
    from dglcell.report.comparison import find_runs, format_runs

    print(format_runs(find_runs(options.folder)))
