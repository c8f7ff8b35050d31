"""Write the file of a user's first experiment from a table or a screen, and check it against its cell."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from dglcell.config.experiment import Config
from dglcell.config.read import BASES, as_plain_text, load_config
from dglcell.data.columns import COVARIATE
from dglcell.data.sources import SourceConfig, load_source
from dglcell.data.sources.csv_table import MISMATCH
from dglcell.data.strains import Strains
from dglcell.errors import count, listing
from dglcell.files.atomic import atomic_file
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import gene_relation
from dglcell.new_experiment.cell import DERIVED, Wanted, cell_keys, find_cell
from dglcell.new_experiment.columns import column_keys
from dglcell.new_experiment.settings import Facts, choose_settings, lacking_genes
from dglcell.new_experiment.table import read_own_table

FEW_VALUES, SHOWN = 5, 10
"""Values of a covariate that a message lists, and most genes that it names."""

HEAD = """\
# Strains of {strains} on the cell graph of {cell}.
{models}
# `dglcell config show {file}` prints every key with its default.
{schedule}
# Comments say why each key has its value. Keys without a comment say what the table is.
"""


def write_experiment(wanted: Wanted) -> str:
    """Write the file of an experiment.

    Returns:
        Text about the strains: how many there are, and which genes the cell graph lacks.
    """
    cell, content = find_cell(wanted), cell_keys(wanted.cell)
    content = {"extends": content.pop("extends"), "experiment": {"name": wanted.file.stem}, **content}
    if "cell" in content:
        content["cell"]["derived"] = [name for name in DERIVED if gene_relation(name) in cell.relations]
    own, source = None, SourceConfig(str(wanted.screen))
    if wanted.table is not None:
        own = read_own_table(wanted, cell)
        cell, source = own.cell, SourceConfig("csv", csv=own.config)
    content["data"] = {"source": {"name": source.name} | ({"csv": column_keys(own.config)} if own else {})}
    if own and own.drops:
        content["data"]["unknown_genes"] = "drop"
    table = load_source(source, wanted.raw)
    chosen = choose_settings(Facts.of(table, cell, own.activity_from if own else ()), wanted.split, wanted.model)
    content["extends"].append(BASES[chosen.model])
    for section, keys in chosen.keys.items():
        content[section] = {**content.get(section, {}), **keys}
    head = HEAD.format(
        strains=wanted.table.name if wanted.table else wanted.screen,
        cell=wanted.cell,
        file=wanted.file,
        models=_comment(f"{chosen.sentence}."),
        schedule=_comment(f"{chosen.schedule}."),
    )
    with atomic_file(wanted.file) as partial:
        partial.write_text(head + with_reasons(content, chosen.reasons), encoding="utf-8")
        config = load_config(partial, [f"paths.raw={wanted.raw}"] if wanted.raw else [])
    return "\n".join([*_about_strains(config, table, cell), str(chosen), *(own.notes if own else [])])


def ask(wanted: Wanted, read: Callable[[str], str]) -> Wanted:
    """Ask the user for strains, cell and split; an empty answer takes the default in brackets.

    Args:
        wanted: the options that are not asked for.
        read: function that shows a question and returns the answer, as `input` does.
    """
    table = read("Table of strains (CSV), or name of a screen: ").strip()
    cell = read("Metabolic model, or cell graph of this package [yeast]: ").strip() or "yeast"
    split = read("Split: random, gene_disjoint to test on new genes, or none to train on everything [random]: ").strip()
    is_table = Path(table).suffix != "" or Path(table).exists()
    strains: dict[str, Any] = {"table": Path(table)} if is_table else {"screen": table}
    return replace(wanted, **strains, cell=cell, split=split or "random")


def with_reasons(content: Mapping[str, Any], reasons: Mapping[str, str], width: int = 120) -> str:
    """Return an experiment as YAML, with the reason for a key above it.

    Args:
        content: content of the file.
        reasons: dotted key → why it has its value.
        width: width of comments.
    """
    lines, path = list[str](), list[str]()
    for line in yaml.safe_dump(as_plain_text(dict(content)), sort_keys=False, allow_unicode=True).splitlines():
        if found := re.match(r"( *)([\w-]+):", line):
            path = [*path[: len(found[1]) // 2], found[2]]
            if reason := reasons.get(".".join(path)):
                lines.append(_comment(reason, found[1], width))
        lines.append(line)
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: str = "", width: int = 120) -> str:
    return textwrap.fill(text, width, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _about_strains(config: Config, table: Strains, cell: CellGraph) -> list[str]:
    """Describe strains, and compare their genes with those of the cell graph."""
    deletions, strains = np.unique(table.num_deletions, return_counts=True)
    sizes = [f"{number:,} of {count(size, 'gene')}" for size, number in zip(deletions, strains, strict=True)]
    weakened = table.activities is not None or bool(config.model.activity_from)
    lines = [f"strains     {len(table):,}, phenotypes {', '.join(table.phenotypes)}"]
    lines.append(f"{'changes' if weakened else 'deletions':11} {', '.join(sizes)}")
    if table.activities is not None:
        left = table.activities[table.activities > 0]
        gone = count(len(table.activities) - len(left), "deletion")
        lines.append(f"activities   {left.min():g} to {left.max():g}; {gone}")
    numbers, covariates = table.of_kind(COVARIATE), list[str]()
    for name, values in table.covariates.items():
        if not name.startswith(MISMATCH):
            some = listing(values) if len(values) <= FEW_VALUES else f"{len(values):,} values"
            covariates.append(f"{name}: {some if values else f'{numbers[name].min():g} to {numbers[name].max():g}'}")
    if positions := len(table.covariates) - len(covariates):
        covariates.append(f"{MISMATCH}_…: where guides do not match, {positions} positions")
    lines += [f"{'' if i else 'covariates':11} {text}" for i, text in enumerate(covariates)]
    unknown = [name for name in table.names if cell.genes.find(name) not in cell.genes]
    if table.names:
        share, changed = 1 - len(unknown) / len(table.names), "changed" if weakened else "deleted"
        lines.append(f"genes       {len(table.names):,} are {changed}, {share:.0%} of them are in the cell graph")
    if unknown:
        share = lacking_genes(table, cell).mean()
        lines.append(f"unknown     {count(len(unknown), 'gene')}, in {share:.0%} of the strains:")
        lines += [f"  {name}{cell.genes.suggestion(name)}" for name in unknown[:SHOWN]]
        lines += [f"  and {len(unknown) - SHOWN:,} more"] * (len(unknown) > SHOWN)
        lines.append("`cell.more_genes: FILE:COLUMN` adds these genes, without edges.")
        done = "Training leaves these strains out: `data.unknown_genes: drop`."
        todo = "Training refuses these strains. Set `data.unknown_genes: drop` to leave them out."
        lines.append(done if config.data.unknown_genes == "drop" else todo)
    return lines
