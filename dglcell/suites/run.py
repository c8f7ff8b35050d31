"""Train the runs of a suite one after the other, and write its table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from dglcell.errors import DglcellError
from dglcell.files.atomic import atomic_file
from dglcell.report.run_files import read_run
from dglcell.suites.suite import Entry, Suite
from dglcell.suites.table import Results, as_json, as_markdown, first_controls, table_rows
from dglcell.training.run import is_finished, train
from dglcell.training.signals import StopSignals

log = logging.getLogger("dglcell")


def train_suite(
    suite: Suite, entries: Sequence[Entry], command: str, report: Callable[[str], None] = print
) -> dict[str, str]:
    """Train all runs that are not finished; one that fails is passed over.

    Returns:
        Run directory → reason, for the runs that failed.

    Raises:
        StoppedError: a signal came; the same command goes on.
    """
    runs = [entry.member(seed) for entry in entries for seed in suite.seeds]
    failed = {}
    with StopSignals(any(config.slurm.requeue for config in runs)) as signals:
        for number, config in enumerate(runs, start=1):
            about = f"{number} of {len(runs)}: {config.run_directory}"
            try:
                if is_finished(config):
                    report(f"{about} is finished")
                    continue
                report(f"{about} is trained")
                train(replace(config, plot=False), command, signals)
            except DglcellError as error:
                failed[str(config.run_directory)] = str(error)
                log.warning("%s failed: %s", config.run_directory, str(error).partition("\n")[0])
    return failed


def read_results(suite: Suite, entries: Sequence[Entry]) -> Results:
    """Return the results of the runs that are finished; runs with other settings do not count."""
    found = {}
    for entry in entries:
        for seed in suite.seeds:
            config = entry.member(seed)
            try:
                if is_finished(config):
                    run = read_run(config.run_directory, parts=())
                    found[config.experiment.name, seed] = [*run.rows, *run.node_rows]
            except DglcellError as error:
                log.warning("%s does not count: %s", config.run_directory, str(error).partition("\n")[0])
    return found


def write_table(suite: Suite, entries: Sequence[Entry], results: Results, path: Path) -> None:
    """Write the table with the controls as Markdown, and every score as JSON beside it."""
    rows = table_rows(entries, suite.seeds, results)
    controls = first_controls(entries, suite.seeds, results)
    texts = {path: as_markdown(suite, rows, controls), path.with_suffix(".json"): as_json(suite, rows, controls)}
    for file, text in texts.items():
        with atomic_file(file) as partial:
            partial.write_text(text, encoding="utf-8")
