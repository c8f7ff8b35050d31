"""Run ``dglcell benchmark``: train a suite of experiments, models and seeds, and write its table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dglcell.cli.arguments import add_raw, keys_of, reporter
from dglcell.cli.outputs import check_output
from dglcell.errors import ConfigError, DglcellError, count, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dglcell.cli.job import Job
    from dglcell.suites.suite import Entry, Suite

HELP = "train a suite of experiments with several models and seeds, and write one table"
EPILOG = """\
  dglcell benchmark lab
  dglcell benchmark mine.yaml --only 101-collins2007/set_operator_random
  dglcell benchmark mine.yaml --submit
SUITE is a YAML file, or a suite of this package: lab, in-silico, strengths-media, explanations. A file of your own
extends one of these and adds a model, which may be your own class:

  extends: lab
  models:
    mine: {model: {name: "my_model:MyModel"}}

Every run trains on the same splits with the same null models. Runs that are finished are not trained again, and one
that fails does not stop the others, so that the same command goes on where it stopped. The table has the mean of each
model and of the best null model, and their difference with an interval. Below it are the controls of one run of each.
--submit makes a pipeline of SLURM jobs: one that builds each missing store, an array of seeds for each experiment and
model, and one that writes the table.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the suite, its keys, and what is done with it."""
    parser.add_argument("suite", type=Path, metavar="SUITE", help="a YAML file, or a name like lab")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="keys of every run, e.g. trainer.threads=1")
    add_raw(parser)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="an experiment or a model; may be given again"
    )
    parser.add_argument(
        "--output",
        "-o",
        type=Path,
        metavar="FILE",
        help="table, with a .json beside it (default: RUNS/suites/SUITE.md)",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--table", action="store_true", help="train nothing; write the table of what is there")
    how.add_argument("--submit", action="store_true", help="submit it to SLURM")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")


def benchmark(options: argparse.Namespace) -> None:
    """Run ``dglcell benchmark``.

    Raises:
        DglcellError: the suite is wrong, or runs of it failed.
    """
    from dglcell.suites.suite import read_suite

    suite, keys = read_suite(options.suite), keys_of(options)
    output = _output(options, suite, keys)
    entries = _only(suite.entries(keys), options.only)
    if options.submit:
        _submit(options, suite, entries, output)
        return
    if options.dry_run:
        for entry in entries:
            print(*(entry.member(seed).run_directory for seed in suite.seeds), sep="\n")
        return
    from dglcell.suites.run import read_results, train_suite, write_table

    failed = {} if options.table else train_suite(suite, entries, options.command, reporter(options))
    write_table(suite, entries, read_results(suite, entries), output)
    print(f"\n{printable(output.read_text(encoding='utf-8'))}\ntable  {output}")
    if failed:
        reasons = "\n".join(f"{run}: {reason.partition(chr(10))[0]}" for run, reason in failed.items())
        raise DglcellError(
            f"{count(len(failed), 'run')} of the suite failed", got=reasons, do="mend this, and give the command again"
        )


def _output(options: argparse.Namespace, suite: Suite, keys: Sequence[str]) -> Path:
    """Return the file of the table, which is refused before all experiments are read if it cannot be written.

    Raises:
        ConfigError: it is no Markdown file, or cannot be written.
    """
    from dglcell.config.read import experiment_file, load_config

    output = options.output
    if output is None:
        first = load_config(experiment_file(suite.experiments[0]), keys)
        output = Path(first.paths.runs) / "suites" / f"{suite.name}.md"
    if output.suffix != ".md":
        raise ConfigError(
            "the table of a suite is Markdown",
            got=f"--output {output}",
            expected="a name that ends with .md",
            do="choose another output",
        )
    check_output(output, "a table of a suite")
    check_output(output.with_suffix(".json"), "scores of a suite")
    return output


def _only(entries: Sequence[Entry], names: Sequence[str]) -> list[Entry]:
    """Return the entries of the experiments and models that ``--only`` names."""
    experiments = {entry.experiment for entry in entries}
    models = {entry.model for entry in entries}
    unknown = [name for name in names if name not in experiments | models]
    if unknown:
        known = ", ".join([*sorted(experiments), *sorted(models)])
        raise ConfigError("`--only` names nothing of the suite", got=unknown[0], expected=f"among {known}")
    wanted_experiments = experiments.intersection(names) or experiments
    wanted_models = models.intersection(names) or models
    return [entry for entry in entries if entry.experiment in wanted_experiments and entry.model in wanted_models]


def _submit(options: argparse.Namespace, suite: Suite, entries: Sequence[Entry], output: Path) -> None:
    """Submit the jobs of a suite: builds of stores, arrays of seeds after them, and the table after all.

    Nothing is submitted unless SLURM would take everything.
    """
    from dglcell.cli.job import after_success
    from dglcell.cluster.jobs import Submitting, refuse_under_way, try_script
    from dglcell.cluster.scripts import job_name, render_step

    jobs = [job for entry in entries if (job := _job(suite, entry)) is not None]
    words = ["benchmark", str(options.suite), *options.overrides, "--table", "--output", str(output)]
    words += [*(["--raw", options.raw] if options.raw else []), *(f"--only={name}" for name in options.only)]
    table = render_step(entries[0].config, f"suite-{suite.name}", options.suite, words)
    builds = {job.store: job.build for job in jobs if job.build is not None}
    scripts = [*builds.values(), *(job.script for job in jobs), table]
    if options.dry_run:
        print(*scripts, sep="\n")
        print(f"# {count(len(jobs), 'job')} with runs; nothing was submitted")
        return
    for script in scripts:
        try_script(script, Path.cwd())
    submission = Submitting(f"suite-{suite.name}", Path.cwd(), entries[0].config.slurm.logs)
    if not submission.goes_on:
        for job in jobs:
            refuse_under_way(job_name(job.config), [str(run) for run in job.runs], Path.cwd(), submission.logs)
    numbers = {store: submission.script(build) for store, build in builds.items()}
    for store, number in numbers.items():
        print(f"job {number} submitted; it builds the store {store}")
    after = []
    for job in jobs:
        before = after_success(numbers[job.store]) if job.build else []
        of_job = Submitting(job_name(job.config), Path.cwd(), submission.logs)
        after.append(of_job.runs(job.script, job.tasks, *before))
        print(f"job {after[-1]} submitted; the runs are {', '.join(map(str, job.runs))}")
    last = submission.script(table, *([f"--dependency=afterany:{':'.join(after)}"] if after else []))
    print(f"job {last} submitted; it writes {output}")
    for job in jobs:
        Submitting(job_name(job.config), Path.cwd(), submission.logs).finish()
    submission.finish()


def _job(suite: Suite, entry: Entry) -> Job | None:
    """Return the job array of an experiment and model with the seeds that are not finished; None if all are."""
    from dglcell.cli.job import job_of
    from dglcell.cluster.scripts import Sweep
    from dglcell.training.run import is_finished

    left = tuple(seed for seed in suite.seeds if not is_finished(entry.member(seed)))
    if not left:
        return None
    sweep = Sweep(left, (), suite.split_seeds)
    return job_of(entry.file, [*entry.overrides, "plot=false"], sweep, measured=True).with_build()
