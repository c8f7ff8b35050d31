"""Make a page of explanations: each strain with its parts, a drawing, and the nodes with the largest shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dglcell import __version__
from dglcell.errors import count
from dglcell.explanations.network import network_of
from dglcell.explanations.reactions import of_whole_reactions
from dglcell.explanations.tables import OTHERS, Explanations
from dglcell.explanations.text import called, strain_name, with_rest
from dglcell.report.network import draw
from dglcell.report.page import Grid, number, write_page

if TYPE_CHECKING:
    import pandas as pd

MOST_DRAWN = 50
"""A page shows so many strains and phenotypes; a table has all of them."""

ROWS = 12
"""So many nodes are in a table for each strain."""


@dataclass(frozen=True)
class Shown:
    """Hold what a page shows of one strain and phenotype.

    Attributes:
        id: unique on the page.
        parts: what the output depends on directly.
        layers: what the layers compute with; None for a model without layers.
        balance: the reactions with the largest shares of the flux balance; None where it is not split.
        edges: the edges with the largest shares of each layer; None where they are not explained.
        drawing: an SVG element; empty where no node has a share.
        caption: says how much of the change the drawing carries.
    """

    id: str
    title: str
    line: str
    parts: Grid
    layers: Grid | None
    nodes: Grid
    balance: Grid | None
    edges: Grid | None
    drawing: str
    caption: str


def write_explanations(found: Explanations, path: Path) -> None:
    """Write the page, whole or not at all."""
    rows = found.strains.head(MOST_DRAWN).to_dict("records")
    several = found.strains["phenotype"].nunique() > 1
    what = "predicted change" if found.subsets is None else "predicted interaction"
    write_page(
        "explanations.html",
        path,
        title=f"Explanations of {count(len(found.strains), what)}",
        interaction=found.subsets is not None,
        strains=[_shown(found, row, several) for row in rows],
        left_out=len(found.strains) - len(rows),
        version=__version__,
    )


def _shown(found: Explanations, row: Mapping[Any, Any], several: bool) -> Shown:
    strain, phenotype = row["strain"], row["phenotype"]
    parts, layers, nodes = (found.of(table, strain, phenotype) for table in ("parts", "layers", "nodes"))
    name = strain_name(row["genes"], found)
    network = network_of(found, strain, phenotype)
    nodes = of_whole_reactions(nodes)
    named = nodes[nodes["node_type"] != OTHERS]
    lines = [
        [_where(one["layer"]), one["node_type"], called(one["name"], one["node"]), number(one["share"], 3)]
        for layer in sorted({0, nodes["layer"].max()} if len(nodes) else ())
        for one in named[named["layer"] == layer].head(ROWS).to_dict("records")
    ]
    title = f"{name}, {phenotype}" if several else name
    what = "change" if found.subsets is None else "interaction"
    return Shown(
        f"strain-{strain}-{phenotype}",
        title,
        _line(row, found),
        Grid(["part", "share"], [[part, number(share, 3)] for part, share in with_rest(parts, row["rest"]).items()]),
        _layers(layers),
        Grid(["where", "type", "node", "share"], lines, texts=3),
        _balance(found.of("balance", strain, phenotype)),
        None if found.edges is None else _edges(found.of("edges", strain, phenotype)),
        draw(network, f"The nodes through which the {what} of {title} passes") if network.nodes else "",
        f"The drawing carries {100 * network.carried:.0f} % of the absolute shares of each layer.",
    )


def _line(row: Mapping[Any, Any], found: Explanations) -> str:
    predicted = f"The model predicts {row['phenotype']} {number(row['predicted'])}"
    change = number(row["change"])
    if found.subsets is None:
        return f"{predicted}, and {number(row['wild_type'])} for the wild type: a change of {change}."
    return f"{predicted}. Fewer of these changes add up to {number(row['expected'])}: an interaction of {change}."


def _balance(balance: pd.DataFrame) -> Grid | None:
    named = balance[balance["reaction"] != OTHERS].head(ROWS).to_dict("records")
    columns = ("wild_type", "flux", "share")
    lines = [[called(one["name"], one["reaction"]), *(number(one[column], 3) for column in columns)] for one in named]
    return Grid(["reaction", "flux of the wild type", "flux", "share"], lines) if lines else None


def _edges(edges: pd.DataFrame) -> Grid | None:
    edges = of_whole_reactions(edges)
    named = edges[edges["relation"] != OTHERS].groupby("layer").head(ROWS).to_dict("records")
    ends = ("source", "target")
    lines = [
        [
            str(one["layer"]),
            one["relation"],
            *(called(one[f"{end}_name"], one[end]) for end in ends),
            number(one["share"], 3),
        ]
        for one in named
    ]
    return Grid(["layer", "relation", "from", "to", "share"], lines, texts=4) if lines else None


def _where(layer: int) -> str:
    return "missing" if layer == 0 else f"after layer {layer}"


def _layers(layers: pd.DataFrame) -> Grid | None:
    if not len(layers):
        return None
    rows = layers.sort_values("layer", kind="stable").to_dict("records")
    return Grid(
        ["layer", "relation", "share"],
        [[str(one["layer"]), one["relation"], number(one["share"], 3)] for one in rows],
        texts=2,
    )
