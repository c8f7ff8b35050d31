"""Say what predicted changes come from: subsets of changes, and sources in the model's own forward.

The forward runs in attribution mode (``perturbation.attribution``). A source gives its difference from the wild type
times the gradient under secants. Sources are messages that lost and weakened nodes no longer send, nodes that leave a
pooling, genes that a head sees, and what measured strains say. They sum to the whole change.
"""

from __future__ import annotations

import copy
import itertools
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.data.dataset import Normaliser
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, GenotypeError, count, listing
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import CATALYSES, GENE, REACTION
from dglcell.graph.vocabulary import Vocabulary
from dglcell.models.model import StrainModel
from dglcell.models.terms.link import PARTS, WHOLES
from dglcell.models.terms.scores import CHANGED_GENES
from dglcell.perturbation.attribution import Attribution, Received, attributing
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.rules import PerturbedTensor
from dglcell.prediction.columns import completion_of
from dglcell.prediction.predict import batches, predict_rows
from dglcell.training.checkpoint import Trained

if TYPE_CHECKING:
    import pandas as pd

GRAPH, GENES, LINK, REMAINDER = "graph", "genes", "link", "remainder"
"""These are terms, beside those of one's own. A remainder is what functions without an exact rule leave."""

POOLING = "leaves the pooling"  # this stands for a relation where a node is lost to a pooling

TOGETHER = "changed genes together"
"""What belongs to no single one of several changed genes is of this: blocked reactions, measured strains, a medium."""

NOTHING = {"term": "", "relation": "", "node_type": "", "node": -1, "target_type": "", "target": -1}
SOURCES, NODES = ["strain", "phenotype", *NOTHING, "change"], ["strain", "phenotype", "node_type", "node", "change"]

KINDS = {
    "term": "terms",
    "relation": "relations",
    "gene": "changed genes",
    "lost": "lost or weakened nodes",
    "message": "lost messages",
    "node": "nodes that the network reads",
}
"""These are the ways in which a change is split, and their headings."""

STRONGEST = 20  # nodes and messages of a strain that are named; the rest is one row

MOST_CHANGES = 6
"""A strain that changes more genes than this has too many subsets: there are 2 to the power of their number."""

COLUMNS = (
    "strain", "genes", "phenotype", "subset", "size", "predicted", "change", "part", "interaction", "responsible",
)  # fmt: skip
"""These are the columns of the table of `explain`."""

BYTES, ROWS_KEPT = 1 << 30, 12
"""Bytes that a batch keeps for its backward pass, and tensors for the rows of a relation in a layer; approximately."""

WIDTH, ACROSS = 118, 3  # width of the text, and number of columns of nodes

Columns = Mapping[str, Any]


@dataclass(frozen=True)
class Attributed:
    """Hold what predicted changes come from."""

    #: [S, T] by how much predictions differ from those for the wild type with the same covariates, in original units
    change: NDArray[np.float64]
    sources: pd.DataFrame  #: every source and the remainder, with the columns ``SOURCES``
    nodes: pd.DataFrame  #: what each node that a pooling reads gives to the change, with the columns ``NODES``


def check_attributable(members: Sequence[Trained]) -> None:
    """Refuse models whose forward has no differences: they attend to single edges, or call a module of DGL."""
    for member in members:
        of_edges = getattr(member.config.model, "strategy_of_edges", None)
        if of_edges is not None and of_edges():
            raise ConfigError(
                "the change cannot be split over sources: this model computes whole states of strains, not differences",
                got="attention over edges, or a module of DGL",
                expected="a model whose messages are summed or averaged, e.g. `model.conv: gin` or `sage`",
                do="look at the responsible subsets, which every model has",
            )


def attribute(members: Sequence[Trained], strains: Strains, batch_size: int | None = None) -> Attributed:
    """Split predicted changes over their sources, in double precision; of several models their mean.

    Strains have genes of the cell graph and the covariates that the models see. As many are in a batch as fit into
    about a gigabyte.
    """
    check_attributable(members)
    change = np.zeros((len(strains), len(members[0].phenotypes)))
    sources, nodes = list["pd.DataFrame"](), list["pd.DataFrame"]()
    for member in members:
        model = copy.deepcopy(member.model).double().requires_grad_(False).eval()
        device = next(model.parameters()).device
        normaliser, first = copy.deepcopy(member.normaliser).double().to(device), 0
        for batch in batches(strains.numpy(), batch_size or _fitting(model)):
            part = attribute_batch(model, normaliser, batch.to(device))
            rows = slice(first, first + batch.num_strains)
            change[rows] += part.change / len(members)
            for found, table in ((sources, part.sources), (nodes, part.nodes)):
                found.append(table.assign(strain=table.strain + first, change=table.change / len(members)))
            first = rows.stop
    return Attributed(change, _summed(sources, SOURCES), _summed(nodes, NODES))


def _fitting(model: StrainModel) -> int:
    rows = sum(model.cell[relation].num_dst for relation in model.cell.relations)
    numbers = rows * max(1, getattr(model.config, "layers", 1)) * getattr(model.config, "hidden", 64) * ROWS_KEPT
    return int(np.clip(BYTES // max(1, numbers * torch.float64.itemsize), 1, 64))


def _summed(tables: Sequence[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    """Return what the same sources give in all tables together."""
    import pandas as pd

    table = pd.concat(tables) if tables else pd.DataFrame(columns=columns)
    return table[columns].groupby(columns[:-1], sort=False)["change"].sum().reset_index()


def attribute_batch(model: StrainModel, normaliser: Normaliser, batch: GenotypeBatch) -> Attributed:
    """Split the changes of a batch from the wild type with the same covariates, by a model in double precision.

    The base of a model is not in the medium of a strain. What media change by themselves is therefore taken off again.
    """
    whole = _split(model, normaliser, batch)
    if batch.covariates is None:
        return whole
    left = None if batch.activities is None else batch.activities[:0]
    nothing = replace(batch, nodes=batch.nodes[:0], offsets=batch.offsets * 0, most=0, activities=left)
    media = _split(model, normaliser, nothing)
    return Attributed(
        whole.change - media.change,
        _summed([whole.sources, media.sources.assign(change=-media.sources.change)], SOURCES),
        _summed([whole.nodes, media.nodes.assign(change=-media.nodes.change)], NODES),
    )


def _split(model: StrainModel, normaliser: Normaliser, batch: GenotypeBatch) -> Attributed:
    """Run a model on strains, and go back from each phenotype to the sources."""
    import pandas as pd

    with attributing() as found:
        y = normaliser.restore(model(batch).phenotypes)
        assert isinstance(y, PerturbedTensor)
        change_BT = y.base.new_zeros(y.shape) if y.delta is None else y.delta
        parts = [_of_phenotype(found, batch, change_B) for change_B in change_BT.unbind(1)]
    sources, nodes = (
        [pd.DataFrame({"phenotype": t, **one}) for t, part in enumerate(parts) for one in part[i]] for i in (0, 1)
    )
    return Attributed(change_BT.detach().cpu().numpy(), _summed(sources, SOURCES), _summed(nodes, NODES))


def _of_phenotype(found: Attribution, batch: GenotypeBatch, change_B: Tensor) -> tuple[list[Columns], list[Columns]]:
    """Return the columns of the sources of one phenotype, and of the nodes that are read."""
    received = [one.difference_MBH for one in found.received]
    leaving, pooled = [gone for _, gone in found.leaving], [one.pooled_BH for one in found.pooled]
    tensors = [*received, *leaving, *pooled, *(x for _, x in found.sources)]
    total = change_B.sum() if change_B.requires_grad else change_B.sum().requires_grad_()
    gradient = iter(torch.autograd.grad(total, tensors, retain_graph=True, allow_unused=True, materialize_grads=True))
    sources = [_messages(one, next(gradient)) for one in found.received]
    for kept, gone_NB in found.leaving:
        values_NB = (gone_NB * next(gradient)).detach()
        node_type = found.type_of(kept)  # None where a head pools the wild type's genes
        term, node_type = (GENES, GENE) if node_type is None else (GRAPH, node_type)
        sources.append(_pairs(values_NB, term=term, relation=POOLING, node_type=node_type))
    nodes = [
        _pairs((one.shares_NBH * next(gradient)).sum(-1), node_type=found.type_of(one.kept)) for one in found.pooled
    ]
    genes_BK = batch.padded()[0]
    for name, x in found.sources:
        value_BK = (x * next(gradient)).detach().unsqueeze(-1).flatten(2).sum(2)
        strain, place = value_BK.nonzero(as_tuple=True)
        what: dict[str, Any] = {"term": LINK, "relation": name} if name in (PARTS, WHOLES) else {"term": name}
        if name == CHANGED_GENES:
            what = {"term": GENES, "node_type": GENE, "node": genes_BK[strain, place]}
        sources.append(_columns(strain, value_BK[strain, place], **what))
    return [*sources, _remainder(found, sources, change_B.detach())], nodes


def _columns(strain: Tensor, change: Tensor, **columns: Any) -> Columns:
    given = {"strain": strain, **NOTHING, **columns, "change": change}
    return {key: x.cpu().numpy() if isinstance(x, Tensor) else x for key, x in given.items()}


def _pairs(values_NB: Tensor, **columns: Any) -> Columns:
    node, strain = values_NB.nonzero(as_tuple=True)
    return _columns(strain, values_NB[node, strain], node=node, **columns)


def _messages(received: Received, grad_MBH: Tensor) -> Columns:
    edge, strain, value = received.lost_messages(grad_MBH)
    source_type, name, target_type = received.relation
    some = value != 0
    ends = {"node": received.edges.src[edge[some]], "target": received.edges.dst[edge[some]]}
    types = {"node_type": source_type, "target_type": target_type}
    return _columns(strain[some], value[some], term=GRAPH, relation=name, **types, **ends)


def _remainder(found: Attribution, sources: Sequence[Columns], change_B: Tensor) -> Columns:
    """Return the columns of what sources do not explain of a change, as far as it is more than rounding."""
    change = change_B.cpu().numpy()
    left = change.copy()
    for one in sources:
        np.subtract.at(left, one["strain"], one["change"])
    (strain,) = np.nonzero(np.abs(left) > 1e-9 * max(1.0, float(np.abs(change).max(initial=0))))
    named = f" of {', '.join(sorted(found.inexact))}" if found.inexact else ""
    return {"strain": strain, **NOTHING, "term": REMAINDER + named, "change": left[strain]}


# The sources as one table.


def written(changed: Sequence[str] | Mapping[str, float]) -> str:
    """Return changes as text, e.g. ``b0008;b2464:0.3``."""
    if not isinstance(changed, Mapping):
        return ";".join(changed)
    return ";".join(name if left == 0 else f"{name}:{left:.4g}" for name, left in changed.items())


def split(members: Sequence[Trained], strains: Strains, batch_size: int | None = None) -> pd.DataFrame:
    """Split predicted changes in every way, as one table; arguments and errors are those of ``attribute``.

    Returns:
        strain (its number), genes, phenotype, kind (one of ``KINDS``), name, change and part (of the whole change).
        Terms and genes sum to the change; relations, lost nodes, messages and nodes to what the term `graph` gives.
    """
    import pandas as pd

    members = [replace(member, chosen={}) for member in members]  # the network alone is split
    found, cell, phenotypes = attribute(members, strains, batch_size), members[0].cell, members[0].phenotypes
    found = _with_computed(found, members, strains, batch_size)
    of_graph, messages = found.sources[found.sources["term"] == GRAPH], found.sources[found.sources["target"] >= 0]
    ends = zip(_names(messages, "node", cell), messages["relation"], _names(messages, "target", cell), strict=True)
    named = {
        "term": found.sources.assign(name=found.sources["term"]),
        "relation": of_graph.assign(name=of_graph["relation"]),
        "gene": by_gene(found.sources, strains.numpy(), cell),
        "lost": of_graph.assign(name=_names(of_graph, "node", cell)),
        "message": messages.assign(name=[f"{source} -{relation}-> {target}" for source, relation, target in ends]),
        "node": found.nodes.assign(name=_names(found.nodes, "node", cell)),
    }
    tables = [_strongest(table, kind) for kind, table in named.items() if len(table)]
    out = pd.concat(tables) if tables else pd.DataFrame(columns=["strain", "phenotype", "kind", "name", "change"])
    number, phenotype = out["strain"].astype(int), out["phenotype"].astype(int)
    genes, whole = [written(one) for one in strains.changes], found.change[number, phenotype]
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


def by_gene(sources: pd.DataFrame, strains: Strains, cell: CellGraph) -> pd.DataFrame:
    """Return sources with the ``name`` of the changed gene that they are of; genes that take a reaction share it."""
    import pandas as pd

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
    return table.assign(name=[TOGETHER if i < 0 else called(cell.genes, cell.genes.names[int(i)]) for i in gene])


def called(genes: Vocabulary, name: str) -> str:
    """Return a gene by its standard name, too, e.g. ``talB (b0008)``."""
    standard = genes.standard(name)
    return f"{standard} ({name})" if standard else name


def _names(table: pd.DataFrame, column: str, cell: CellGraph) -> list[str]:
    found = []
    for node_type, node in zip(table[f"{column}_type"], table[column], strict=True):
        vocabulary = cell.vocabularies[node_type]
        name = vocabulary.names[node]
        found.append(called(vocabulary, name) if node_type == GENE else name)
    return found


# Subsets of changes.


def explain(members: Sequence[Trained], strains: Strains, batch_size: int | None = None) -> pd.DataFrame:
    """Predict all subsets of the changes of strains, and mark those that are responsible.

    The smallest subset whose predicted change is most of the whole change is responsible. The interaction of a subset S
    is what its prediction has beyond all that smaller subsets do: ``sum of (-1)^(|S| - |T|) y(T) over T in S``; of a
    pair it is ``y(both) - y(first) - y(second) + y(wild type)``. The interactions of all subsets but the empty one sum
    to the change.

    The columns are those that ``Predictor.explain`` describes.

    Raises:
        GenotypeError: a strain changes more than ``MOST_CHANGES`` genes.
    """
    import pandas as pd

    strains = strains.numpy()
    if many := np.flatnonzero(strains.num_deletions > MOST_CHANGES).tolist():
        what, do = "a strain changes too many genes for a table of all subsets", "leave these strains out"
        got = f"{count(int(strains.num_deletions[many[0]]), 'changed gene')} in strain {listing(many)}"
        raise GenotypeError(what, got=got, expected=f"at most {MOST_CHANGES} changed genes", do=do)
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
    # Nothing is responsible for a change that is rounding.
    part = np.full(len(change), np.nan) if abs(change[-1]) <= 1e-6 else change / change[-1]
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


# Text for a terminal.


def show(found: pd.DataFrame, genes: Vocabulary, splits: pd.DataFrame | None = None) -> str:
    """Return a table of `explain` as text, with that of `split`: one strain in full, two with less, more as a list."""
    import pandas as pd

    groups = [rows for _, rows in found.groupby(["strain", "phenotype"], sort=False)]
    if len(groups) <= 2:  # sources of more than one would fill the screen
        return "\n\n".join(_in_full(rows, genes, splits if len(groups) == 1 else None) for rows in groups)
    lines = [
        {
            "strain": _all_called(rows["genes"].iloc[0], genes),
            "phenotype": rows["phenotype"].iloc[0],
            "predicted": f"{rows['predicted'].iloc[-1]:.3g}",
            "change": f"{rows['change'].iloc[-1]:+.3g}",
            "responsible": _responsible(rows, genes) or "-",
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
    named = _responsible(rows, genes)
    if not named:
        return "\n".join([*lines, "  The model predicts the same as for the wild type."])
    lines += [f"  responsible: {named}", "      change  interaction  of"]
    shown = rows.iloc[1:] if len(rows) <= 8 else rows.iloc[-1:]
    of_each = zip(*(shown[name] for name in ("change", "interaction", "subset")), strict=True)
    lines += [
        f"  {change:+10.4f}  {together:+11.4f}  {_all_called(subset, genes)}" for change, together, subset in of_each
    ]
    return "\n".join(lines if split is None else [*lines, *_lines_of(split)])


def _lines_of(rows: pd.DataFrame) -> Iterator[str]:
    """Yield lines that say what the change of one strain and phenotype comes from, given its rows of ``split``."""
    of_kind = {kind: list(zip(own["name"], own["change"], strict=True)) for kind, own in rows.groupby("kind")}
    for kind in ("term", "relation", "gene"):
        # No line ends between a name and its number.
        parts = ", ".join(f"{name} {change:+.4f}".replace(" ", "\xa0") for name, change in of_kind.get(kind, ()))
        text = f"  {KINDS[kind] + ':':15}{parts}"
        for line in textwrap.wrap(text, WIDTH, subsequent_indent=" " * 17) if parts else ():
            yield line.replace("\xa0", " ")
    nodes, room = of_kind.get("node", []), WIDTH // ACROSS - 12
    short = (name if len(name) <= room else f"{name[: room - 1]}…" for name, _ in nodes)
    cells = [f"{change:+9.4f} {name}" for name, (_, change) in zip(short, nodes, strict=True)]
    if cells:
        yield f"  {KINDS['node']}, the strongest first:"
    deep = -(-len(cells) // ACROSS)
    for row in range(deep):
        yield "  " + "".join(cell.ljust(WIDTH // ACROSS) for cell in cells[row::deep]).rstrip()


def _responsible(rows: pd.DataFrame, genes: Vocabulary) -> str:
    return " or ".join(_all_called(subset, genes) for subset in rows[rows["responsible"]]["subset"])


def _all_called(changed: str, genes: Vocabulary) -> str:
    """Return changes by the standard names of genes too, e.g. ``talB (b0008), talA (b2464):0.3``."""
    parts = (part.partition(":") for part in changed.split(";") if part)
    return ", ".join(called(genes, gene) + colon + left for gene, colon, left in parts) or "the wild type"
