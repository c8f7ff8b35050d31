"""Say what predicted changes come from: subsets of changes, and tables, text and a picture of the sources."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.data.strains import Strains
from dglcell.errors import GenotypeError, count, listing
from dglcell.explain.attribute import GRAPH, NOTHING, Attributed, attribute
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import CATALYSES, GENE, REACTION
from dglcell.graph.vocabulary import Vocabulary
from dglcell.prediction.covariates import completion_of
from dglcell.prediction.predict import predict_rows
from dglcell.report.pictures import BLUE, DPI, GREY, STYLE, VERMILION, encode, heading, new_figure, shorten
from dglcell.training.checkpoint import Trained

if TYPE_CHECKING:
    import pandas as pd


STRONGEST = 20
"""Nodes and messages of a strain that are named; the rest is one row."""

TOGETHER = "changed genes together"
"""What belongs to no single one of several changed genes is of this: blocked reactions, measured strains, a medium."""

KINDS = {
    "term": "terms",
    "relation": "relations",
    "gene": "changed genes",
    "lost": "lost or weakened nodes",
    "message": "lost messages",
    "node": "nodes that the network reads",
}
"""These are the ways in which a change is split, and their headings."""

WIDTH, ACROSS = 118, 3
"""Width of the text, and number of columns of nodes."""


def written(changed: Sequence[str] | Mapping[str, float]) -> str:
    """Return changes as text, e.g. ``b0008;b2464:0.3``."""
    if not isinstance(changed, Mapping):
        return ";".join(changed)
    return ";".join(name if left == 0 else f"{name}:{left:.4g}" for name, left in changed.items())


def split(members: Sequence[Trained], strains: Strains, batch_size: int | None = None) -> pd.DataFrame:
    """Split predicted changes in every way, as one table.

    Args:
        members, strains, batch_size: as for ``attribute``.

    Returns:
        strain (its number), genes, phenotype, kind (one of ``KINDS``), name, change and part (of the whole change).
        Terms and genes sum to the change; relations, lost nodes, messages and nodes to what the term `graph` gives.

    Raises:
        ConfigError: as ``check_attributable`` says.
    """
    import pandas as pd

    found, cell, phenotypes = attribute(members, strains, batch_size), members[0].cell, members[0].phenotypes
    found = _with_computed(found, members, strains, batch_size)
    genes = [written(one) for one in strains.changes]
    of_graph, messages = found.sources[found.sources["term"] == GRAPH], found.sources[found.sources["target"] >= 0]
    ends = zip(_names(messages, "node", cell), messages["relation"], _names(messages, "target", cell), strict=True)
    named = {
        "term": found.sources.assign(name=found.sources["term"]),
        "relation": of_graph.assign(name=of_graph["relation"]),
        "gene": _by_gene(found, strains.numpy(), cell),
        "lost": of_graph.assign(name=_names(of_graph, "node", cell)),
        "message": messages.assign(name=[f"{source} -{relation}-> {target}" for source, relation, target in ends]),
        "node": found.nodes.assign(name=_names(found.nodes, "node", cell)),
    }
    tables = [_strongest(table, kind) for kind, table in named.items() if len(table)]
    out = pd.concat(tables) if tables else pd.DataFrame(columns=["strain", "phenotype", "kind", "name", "change"])
    number, phenotype = out["strain"].astype(int), out["phenotype"].astype(int)
    whole = found.change[number, phenotype]
    out = out.assign(
        genes=[genes[i] for i in number],
        phenotype=[phenotypes[i] for i in phenotype],
        part=(out["change"] / whole).where(abs(whole) > 0),
    )
    return out[["strain", "genes", "phenotype", "kind", "name", "change", "part"]].reset_index(drop=True)


def _with_computed(
    found: Attributed, members: Sequence[Trained], strains: Strains, batch_size: int | None
) -> Attributed:
    """Add what a simulator's covariates, such as the growth of flux balance analysis, give by differing in strains."""
    import pandas as pd

    complete, arrays = completion_of(members[0]), strains.numpy()
    if complete is None:
        return found
    wild = arrays.with_targets(np.zeros(len(arrays.targets), bool))
    with_own, with_theirs = (predict_rows(members, one, batch_size=batch_size) for one in (complete(wild), wild))
    names = [f"predicted_{phenotype}" for phenotype in members[0].phenotypes]
    change = np.stack([with_theirs[name].astype(float) - with_own[name].astype(float) for name in names], axis=1)
    strain, phenotype = np.nonzero(change)
    rows = pd.DataFrame({"strain": strain, "phenotype": phenotype, **NOTHING, "term": "computed covariates"})
    rows["change"] = change[strain, phenotype]
    return replace(found, change=found.change + change, sources=pd.concat([found.sources, rows]))


def _strongest(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return the sums of a strain and phenotype by name, the strongest first; the rest of a long list is one row."""
    import pandas as pd

    keys = ["strain", "phenotype"]
    sums = table.groupby([*keys, "name"], as_index=False, sort=False)["change"].sum()
    sums = sums.assign(size=sums["change"].abs().round(9))  # equal ones are in the order of their names
    sums = sums.sort_values([*keys, "size", "name"], ascending=[True, True, False, True])
    weak = (sums.groupby(keys).cumcount() >= STRONGEST) & (kind in ("lost", "message", "node"))
    rest = sums[weak].groupby(keys, as_index=False).agg(change=("change", "sum"), name=("name", "count"))
    rest["name"] = [f"{number:,} others" for number in rest["name"]]
    return pd.concat([sums[~weak], rest]).assign(kind=kind)[[*keys, "kind", "name", "change"]]


def _by_gene(found: Attributed, strains: Strains, cell: CellGraph) -> pd.DataFrame:
    """Return sources by the changed genes that they are of; genes that take the same reaction share it."""
    import pandas as pd

    sources = found.sources
    own, of_reactions = sources[sources["node_type"] == GENE], sources[sources["node_type"] == REACTION]
    others = sources[~sources["node_type"].isin([GENE, REACTION])]
    edges = cell.edges(CATALYSES) if CATALYSES in cell.relations else None
    pairs = pd.DataFrame({"gene": [] if edges is None else edges.src, "node": [] if edges is None else edges.dst})
    owner = np.repeat(np.arange(len(strains)), strains.num_deletions)
    changed = pd.DataFrame({"strain": owner, "gene": strains.targets.astype("int64")})
    owners = changed.merge(pairs.astype("int64").drop_duplicates(), on="gene")
    owners["owners"] = owners.groupby(["strain", "node"])["gene"].transform("count")
    shared = of_reactions.merge(owners, on=["strain", "node"], how="left")
    shared["change"] /= shared["owners"].fillna(1)
    parts = [own.assign(gene=own["node"]), shared, others.assign(gene=-1)]
    table = pd.concat([part for part in parts if len(part)] or parts)
    alone = changed.drop_duplicates("strain", keep=False).set_index("strain")["gene"]
    gene = pd.Series(np.where(table["gene"] >= 0, table["gene"], table["strain"].map(alone))).fillna(-1)
    return table.assign(name=[TOGETHER if i < 0 else _called(cell.genes, cell.genes.names[int(i)]) for i in gene])


def _called(genes: Vocabulary, name: str) -> str:
    standard = genes.standard(name)
    return f"{standard} ({name})" if standard else name


def _names(table: pd.DataFrame, column: str, cell: CellGraph) -> list[str]:
    """Return the names of nodes; genes have their standard names, too."""
    found = []
    for node_type, node in zip(table[f"{column}_type"], table[column], strict=True):
        vocabulary = cell.vocabularies[node_type]
        name = vocabulary.names[node]
        found.append(_called(vocabulary, name) if node_type == GENE else name)
    return found


def with_subsets(splits: pd.DataFrame | None, subsets: pd.DataFrame) -> pd.DataFrame:
    """Return subsets of deletions, of the kind ``subset``, and the ways in which changes are split, as one table."""
    import pandas as pd

    table = subsets.rename(columns={"subset": "name"}).assign(kind="subset")
    columns = ["strain", "genes", "phenotype", "kind", "name", "change", "part"]
    table = table[[*columns, *(name for name in table.columns if name not in columns)]]
    if splits is None or not len(splits):
        return table
    both = pd.concat([table.astype({"size": "Int64", "responsible": "boolean"}), splits])
    return both.sort_values(["strain", "phenotype"], kind="stable", ignore_index=True)


def text_of(rows: pd.DataFrame) -> str:
    """Return what the change of one strain and phenotype comes from as text, of its rows of ``split``."""
    lines = []
    for kind in ("term", "relation", "gene"):
        some = rows[rows["kind"] == kind]
        if len(some):
            parts = [f"{row.name_} {row.change:+.4f}" for row in some.rename(columns={"name": "name_"}).itertuples()]
            indent = " " * 17
            text = f"  {KINDS[kind] + ':':15}{', '.join(part.replace(' ', chr(160)) for part in parts)}"
            lines += [line.replace(chr(160), " ") for line in textwrap.wrap(text, WIDTH, subsequent_indent=indent)]
    nodes, room = rows[rows["kind"] == "node"], WIDTH // ACROSS - 12
    short = (name if len(name) <= room else f"{name[: room - 1]}…" for name in nodes["name"])
    cells = [f"{change:+9.4f} {name}" for change, name in zip(nodes["change"], short, strict=True)]
    if cells:
        lines.append(f"  {KINDS['node']}, the strongest first:")
    deep = -(-len(cells) // ACROSS)
    lines += ["  " + "".join(cell.ljust(WIDTH // ACROSS) for cell in cells[row::deep]).rstrip() for row in range(deep)]
    return "\n".join(lines)


DRAWN = ("term", "gene", "relation", "node")
PICTURE_WIDTH, BAR, MARGIN = 1800 / DPI, 0.17, 0.9


def draw(table: pd.DataFrame) -> bytes:
    """Draw the four strains with the largest changes as a PNG file, with a row of panels for each.

    Args:
        table: what ``tables.split`` gives.
    """
    import matplotlib

    groups = [rows for _, rows in table.groupby(["strain", "phenotype"], sort=False)]
    drawn = sorted(groups, key=lambda rows: -abs(_change(rows)))[:4]
    heights = [MARGIN + BAR * rows["kind"].value_counts().max() for rows in drawn]
    figure = new_figure(PICTURE_WIDTH, sum(heights) + 0.4)
    with matplotlib.rc_context(STYLE):
        figure.set_layout_engine("constrained", hspace=0.04, wspace=0.03)
        panels = figure.subplots(len(drawn), len(DRAWN), squeeze=False, height_ratios=heights)
        for row, rows in zip(panels, drawn, strict=True):
            title = f"{shorten(rows['genes'].iloc[0], 40)}: {rows['phenotype'].iloc[0]} {_change(rows):+.3g}"
            for axes, kind in zip(row, DRAWN, strict=True):
                heading(axes, title, KINDS[kind])
                some, title = rows[rows["kind"] == kind], ""  # which the first panel has
                colors = [VERMILION if change < 0 else BLUE for change in some["change"]]
                axes.barh(range(len(some)), some["change"], color=colors)
                axes.set_yticks(range(len(some)), [shorten(name, 26) for name in some["name"]])
                axes.axvline(0, color=GREY, linewidth=0.7)
                axes.locator_params(axis="x", nbins=4)
                axes.set_ylim(rows["kind"].value_counts().max() - 0.4, -0.6)
        said = "" if len(drawn) == len(groups) else f"; {len(drawn)} of {count(len(groups), 'strain')}"
        figure.supxlabel(f"what each gives to the predicted change{said}", color=GREY, fontsize=8)
        return encode(figure)


def _change(rows: pd.DataFrame) -> float:
    return float(rows.loc[rows["kind"] == "term", "change"].sum())


MOST_CHANGES = 6
"""A strain that changes more genes than this has too many subsets: there are 2 to the power of their number."""

ROUNDING = 1e-6
"""A smaller change of a prediction is rounding, which nothing is responsible for."""


def explain(members: Sequence[Trained], strains: Strains, batch_size: int | None = None) -> pd.DataFrame:
    """Predict all subsets of the changes of strains, and mark those that are responsible.

    The smallest subset whose predicted change is most of the whole change is responsible. The interaction of a subset S
    is what its prediction has beyond all that smaller subsets do: ``sum of (-1)^(|S| - |T|) y(T) over T in S``; of a
    pair it is ``y(both) - y(first) - y(second) + y(wild type)``. The interactions of all subsets but the empty one sum
    to the change.

    Args:
        members: one or several models, on the device where this runs; several are explained by their mean.
        strains: the strains, with genes of the cell graph and the covariates that the models see.
        batch_size: strains per forward pass; as many as fit into memory where None.

    Returns:
        For each strain and phenotype the subsets of its changes, small ones first, as ``Predictor.explain`` says.

    Raises:
        GenotypeError: a strain changes more than ``MOST_CHANGES`` genes.
    """
    import pandas as pd

    strains = strains.numpy()
    if many := np.flatnonzero(strains.num_deletions > MOST_CHANGES).tolist():
        raise GenotypeError(
            "a strain changes too many genes for a table of all subsets",
            got=f"{count(int(strains.num_deletions[many[0]]), 'changed gene')} in strain {listing(many)}",
            expected=f"at most {MOST_CHANGES} changed genes",
            do="leave these strains out",
        )
    subsets, complete = subsets_of(strains), completion_of(members[0])
    subsets = subsets if complete is None else complete(subsets)
    columns = predict_rows(members, subsets, batch_size=batch_size)
    genes, names = ([written(one) for one in some.changes] for some in (strains, subsets))
    tables, first = list["pd.DataFrame"](), 0
    for strain, number in enumerate(strains.num_deletions.tolist()):
        rows = slice(first, first + 2**number)
        first = rows.stop
        for phenotype in members[0].phenotypes:
            of = {"strain": strain, "genes": genes[strain], "phenotype": phenotype, "subset": names[rows]}
            found = compare_subsets(columns[f"predicted_{phenotype}"][rows].astype(float))
            tables.append(pd.DataFrame(of | found))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=COLUMNS)


COLUMNS = (
    "strain", "genes", "phenotype", "subset", "size", "predicted", "change", "part", "interaction", "responsible",
)  # fmt: skip
"""These are the columns of the table of `explain`."""


def show(found: pd.DataFrame, genes: Vocabulary, splits: pd.DataFrame | None = None) -> str:
    """Return a table of `explain` as text for a terminal: one strain in full, more with less, and many as a list.

    Args:
        found: the table.
        genes: names of genes.
        splits: how the same changes are split over sources, as ``tables.split`` gives it; None where they cannot be.
    """
    import pandas as pd

    keys = ["strain", "phenotype"]
    groups = [rows for _, rows in found.groupby(keys, sort=False)]
    if len(groups) <= 2:  # sources of more than one would fill the screen
        return "\n\n".join(_in_full(rows, genes, splits if len(groups) == 1 else None) for rows in groups)
    lines = [
        {
            "strain": _all_called(rows["genes"].iloc[0], genes),
            "phenotype": rows["phenotype"].iloc[0],
            "predicted": f"{rows['predicted'].iloc[-1]:.3g}",
            "change": f"{rows['change'].iloc[-1]:+.3g}",
            "responsible": _named(rows, genes) or "-",
        }
        for rows in groups
    ]
    return pd.DataFrame(lines).to_string(index=False)


def _in_full(rows: pd.DataFrame, genes: Vocabulary, split: pd.DataFrame | None) -> str:
    wild, whole = rows.iloc[0], rows.iloc[-1]
    lines = [
        f"{_all_called(whole['genes'], genes)}: {whole['phenotype']} {whole['predicted']:.3g}, "
        f"of the wild type {wild['predicted']:.3g}, change {whole['change']:+.3g}"
    ]
    named = _named(rows, genes)
    if not named:
        return "\n".join([*lines, "  The model predicts the same as for the wild type."])
    lines += [f"  responsible: {named}", "      change  interaction  of"]
    shown = rows.iloc[1:] if len(rows) <= 8 else rows.iloc[-1:]
    of_each = zip(*(shown[name] for name in ("change", "interaction", "subset")), strict=True)
    lines += [
        f"  {change:+10.4f}  {together:+11.4f}  {_all_called(subset, genes)}" for change, together, subset in of_each
    ]
    if split is not None:
        lines.append(text_of(split))
    return "\n".join(lines)


def _named(rows: pd.DataFrame, genes: Vocabulary) -> str:
    return " or ".join(_all_called(subset, genes) for subset in rows[rows["responsible"]]["subset"])


def _all_called(changed: str, genes: Vocabulary) -> str:
    """Return changes by the standard names of genes too, e.g. ``talB (b0008), talA (b2464):0.3``."""
    parts = (part.partition(":") for part in changed.split(";") if part)
    return ", ".join(_called(genes, gene) + colon + left for gene, colon, left in parts) or "the wild type"


def _every(number: int) -> NDArray[np.bool_]:
    """Return which of some changes are in each of their subsets, [2^K, K], small subsets first."""
    subsets = (one for size in range(number + 1) for one in itertools.combinations(range(number), size))
    return np.array([[place in one for place in range(number)] for one in subsets], bool)


def subsets_of(strains: Strains) -> Strains:
    """Return all subsets of the changes of strains, in numpy, as strains with the columns of those that they are of."""
    every = [_every(number) for number in strains.num_deletions.tolist()]
    places = [first + np.nonzero(subsets)[1] for first, subsets in zip(strains.offsets, every, strict=False)]
    chosen = np.concatenate([*places, np.zeros(0, np.int64)])
    sizes = np.concatenate([[0], *(subsets.sum(axis=1) for subsets in every)])
    return strains.take(np.repeat(np.arange(len(strains)), [len(subsets) for subsets in every])).with_(
        targets=strains.targets[chosen],
        offsets=np.cumsum(sizes),
        activities=None if strains.activities is None else strains.activities[chosen],
    )


def compare_subsets(predicted: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Return the columns of `explain` from ``size`` on, given what is predicted of all subsets of a strain, [2^K]."""
    every = _every(len(predicted).bit_length() - 1).astype(int)
    size, change = every.sum(axis=1), predicted - predicted[0]
    part = np.full(len(change), np.nan) if abs(change[-1]) <= ROUNDING else change / change[-1]
    is_inside = every @ every.T == size  # [2^K, 2^K] whether the second is a part of the first
    enough = part >= 0.9  # so it was measured
    return {
        "size": size,
        "predicted": predicted,
        "change": change,
        "part": part,
        "interaction": np.where(is_inside, (-1.0) ** (size[:, None] - size), 0.0) @ change,
        "responsible": enough & (size == size[enough].min(initial=len(part))),
    }
