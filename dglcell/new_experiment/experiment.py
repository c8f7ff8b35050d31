"""Write the file of a user's first experiment from a table or a screen, and check it against its cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dglcell.config.experiment import Config
from dglcell.config.read import BASES, load_config
from dglcell.data.columns import CONDITION
from dglcell.data.sources import load_source
from dglcell.data.sources.guides import MISMATCH
from dglcell.data.strains import Strains
from dglcell.errors import count, listing
from dglcell.files.atomic import atomic_file
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import gene_relation
from dglcell.new_experiment.cell import DERIVED, Downloads, cell_keys, find_cell
from dglcell.new_experiment.columns import WantedTable
from dglcell.new_experiment.settings import Facts, Settings, choose_settings, comment, lacking_genes, with_reasons
from dglcell.new_experiment.table import SHOWN, OwnTable, read_own_table

SPLIT_QUESTION = "Split: random, gene_disjoint to test on new genes, or none to train on everything [random]: "

FEW_VALUES = 5
"""Messages list so many values of a condition."""

HEAD = """\
# {about}
{models}
# `dglcell config show {file}` prints every key with its default.
{schedule}
# Comments say why each key has its value. Keys without a comment say what the table is.
"""


@dataclass(frozen=True)
class Wanted:
    """Hold what a user asks `dglcell init` for.

    Attributes:
        file: file to be written.
        table: table of strains; None for a screen.
        screen: name of a source that `dglcell data list` names; None for a table.
        cell: a metabolic model, or a cell of this package, e.g. ``yeast``.
        split: value of `split.kind`.
        raw: folder of raw files, as for `raw_folder`.
        model: a key of `BASES`; chosen where None.
    """

    file: Path
    table: WantedTable | None
    screen: str | None
    cell: str
    split: str = "random"
    raw: str | None = None
    model: str | None = None


def write_experiment(wanted: Wanted, downloads: Downloads | None = None) -> str:
    """Write the file of an experiment.

    Args:
        wanted: what the experiment is to be.
        downloads: how missing files are downloaded; nobody is asked where None.

    Returns:
        Text about the strains: how many there are, and which genes the cell graph lacks.

    Raises:
        ConfigError: the file exists, what is wanted is no valid experiment, or files have to be downloaded first.
        DataError: the table has no such columns, or rows have faults; or the cell graph lacks a gene of every strain.
        GraphError: the cell graph cannot be built.
    """
    downloads = downloads or Downloads(wanted.raw)
    cell = find_cell(wanted.cell, wanted.screen, downloads)
    content, own = _content(wanted, cell, downloads)
    cell, notes, learned = (own.cell, own.notes, own.strength_from) if own else (cell, [], [])
    strains = wanted.table.path.name if wanted.table else wanted.screen
    about = f"Strains of {strains} on the cell graph of {wanted.cell}."
    raw = [f"paths.raw={wanted.raw}"] if wanted.raw else []
    with atomic_file(wanted.file) as partial:

        def write(settings: Settings | None = None) -> Config:
            text = with_reasons(content, {})
            if settings is not None:
                schedule, models = comment(f"{settings.schedule}; {settings.cost}."), comment(f"{settings.sentence}.")
                text = HEAD.format(about=about, file=wanted.file, models=models, schedule=schedule)
                text += with_reasons(_with_settings(content, settings), settings.reasons)
            partial.write_text(text, encoding="utf-8")
            return load_config(partial, raw)

        config = write()
        table = load_source(config.data.source, config.paths.raw)
        settings = choose_settings(Facts.of(table, cell, learned), wanted.split, wanted.model)
        return "\n".join([_check(write(settings), table, cell), str(settings), *notes])


def _with_settings(content: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Return an experiment's keys with the settings that were chosen for it."""
    merged = {**content, "extends": [*content["extends"], BASES[settings.model]]}
    for section, keys in settings.keys.items():
        merged[section] = {**merged.get(section, {}), **keys}
    return merged


def ask(file: Path, read: Callable[[str], str]) -> Wanted:
    """Ask the user what they want; an empty answer takes the default in brackets.

    Args:
        file: file to be written.
        read: function that shows a question and returns the answer, as `input` does.
    """
    table = read("Table of strains (CSV), or name of a screen: ").strip()
    cell = read("Metabolic model, or cell graph of this package [yeast]: ").strip() or "yeast"
    split = read(SPLIT_QUESTION).strip() or "random"
    is_table = Path(table).suffix != "" or Path(table).exists()
    return Wanted(file, WantedTable(Path(table)) if is_table else None, None if is_table else table, cell, split)


def _content(wanted: Wanted, cell: CellGraph, downloads: Downloads) -> tuple[dict[str, Any], OwnTable | None]:
    """Return the keys of the file, and the table, if the strains come from one."""
    keys = cell_keys(wanted.cell)
    content: dict[str, Any] = {"experiment": {"name": wanted.file.stem}} | {
        key: value for key, value in keys.items() if key != "extends"
    }
    if "cell" in keys:
        derived = [name for name in DERIVED if gene_relation(name) in cell.relations]
        content["cell"] = {**content["cell"], "derived": derived}
    data: dict[str, object] = {"source": {"name": wanted.screen}}
    table = None
    if wanted.table is not None:
        table = read_own_table(wanted.table, cell, wanted.cell, downloads)
        data = {"source": {"name": "csv", "csv": table.keys}} | ({"unknown_genes": "drop"} if table.drops else {})
    content["data"] = data
    return {"extends": keys["extends"], **content}, table


def _check(config: Config, table: Strains, cell: CellGraph) -> str:
    """Compare the genes of the strains with those of the cell graph."""
    unknown = [name for name in table.names if cell.genes.find(name) not in cell.genes]
    deletions, strains = np.unique(table.num_deletions, return_counts=True)
    sizes = [f"{number:,} of {count(size, 'gene')}" for size, number in zip(deletions, strains, strict=True)]
    lines = [f"strains     {len(table):,}, phenotypes {', '.join(table.phenotypes)}"]
    weakened = table.strengths is not None or bool(config.model.strength_from)
    changed = "changed" if weakened else "deleted"
    lines.append(f"{'changes' if weakened else 'deletions':11} {', '.join(sizes)}")
    if table.strengths is not None:
        left = table.strengths[table.strengths > 0]
        lines.append(
            f"strengths   {left.min():g} to {left.max():g}; {count(len(table.strengths) - len(left), 'deletion')}"
        )
    lines += [f"{text:11} {more}" for text, more in _about_conditions(table)]
    if table.names:
        share = 1 - len(unknown) / len(table.names)
        lines.append(f"genes       {len(table.names):,} are {changed}, {share:.1%} of them are in the cell graph")
    if unknown:
        lines += _about_unknown(table, cell, unknown, config.data.unknown_genes)
    return "\n".join(lines)


def _about_conditions(table: Strains) -> Iterator[tuple[str, str]]:
    """Yield what begins a line, and the rest of it, for each condition; mismatches of guides have one line."""
    categories = {name: values for name, values in table.conditions.items() if not name.startswith(MISMATCH)}
    first = "conditions"
    for name, values in categories.items():
        numbers = table.of_kind(CONDITION)[name]
        some = listing(values) if len(values) <= FEW_VALUES else f"{len(values):,} values"
        yield first, f"{name}: {some if values else f'{numbers.min():g} to {numbers.max():g}'}"
        first = ""
    if len(categories) < len(table.conditions):
        yield first, f"{MISMATCH}_…: where guides do not match, {len(table.conditions) - len(categories)} positions"


def _about_unknown(table: Strains, cell: CellGraph, unknown: Sequence[str], policy: str) -> list[str]:
    named = [f"  {name}{cell.genes.suggestion(name)}" for name in unknown[:SHOWN]]
    done = "Training leaves these strains out: `data.unknown_genes: drop`."
    todo = "Training refuses these strains. Set `data.unknown_genes: drop` to leave them out."
    return [
        f"unknown     {count(len(unknown), 'gene')}, in {lacking_genes(table, cell).mean():.1%} of the strains:",
        *named,
        *([f"  and {len(unknown) - SHOWN:,} more"] if len(unknown) > SHOWN else []),
        "`cell.more_genes: FILE:COLUMN` adds these genes, without edges.",
        done if policy == "drop" else todo,
    ]
