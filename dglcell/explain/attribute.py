"""Split the predicted changes of strains over their sources, by the model's own forward in attribution mode.

A source gives its difference from the wild type times the gradient under secants (``perturbation.attribution``). These
are messages that lost and weakened nodes no longer send, nodes that leave a pooling, genes that a head sees, and what
measured strains say. They sum to the whole change.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.data.dataset import Normaliser
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError
from dglcell.graph.schema import GENE
from dglcell.models.model import StrainModel
from dglcell.models.terms.link import PARTS, WHOLES
from dglcell.nn.heads import CHANGED_GENES
from dglcell.perturbation.attribution import Attribution, Received, attributing
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.rules import PerturbedTensor
from dglcell.prediction.predict import batches
from dglcell.training.checkpoint import Trained

if TYPE_CHECKING:
    import pandas as pd

GRAPH, GENES, LINK, REMAINDER = "graph", "genes", "link", "remainder"
"""These are terms, beside those of one's own. A remainder is what functions without an exact rule leave."""

POOLING = "leaves the pooling"
"""This stands for a relation where a node is lost to a pooling."""

ROUNDING = 1e-9
"""A remainder below this part of a change is rounding."""

BYTES, ROWS_KEPT = 1 << 30, 12
"""Bytes that a batch keeps for its backward pass, and tensors for the rows of a relation in a layer; approximately."""

SOURCES = ("strain", "phenotype", "term", "relation", "node_type", "node", "target_type", "target", "change")
NODES = ("strain", "phenotype", "node_type", "node", "change")
"""These are the columns of ``Attributed``."""

Columns = Mapping[str, Any]


@dataclass(frozen=True)
class Attributed:
    """Hold what predicted changes come from."""

    #: [S, T] predictions for the wild type with the covariates of the strains, in original units
    wild_type: NDArray[np.float64]
    change: NDArray[np.float64]  #: [S, T] by how much the strains differ from it
    #: every source and the remainder: numbers of strain and phenotype, term, relation, the node that is lost or
    #: changed, the node that does not get its message, and what this gives; nodes are −1 where there is none
    sources: pd.DataFrame
    nodes: pd.DataFrame  #: by nodes that a pooling reads, whether they are kept or lost, what each gives to the change


def check_attributable(members: Sequence[Trained]) -> None:
    """Refuse models whose forward has no differences.

    Raises:
        ConfigError: a model attends to single edges, or strains change some.
    """
    for member in members:
        of_edges = getattr(member.config.model, "strategy_of_edges", None)
        if of_edges is not None and of_edges():
            raise ConfigError(
                "the change cannot be split over sources: this model computes whole states of strains, not differences",
                got="attention over edges, a module of DGL, or strains that change single edges",
                expected="a model whose messages are summed or averaged, e.g. `model.conv: gin` or `sage`",
                do="look at the responsible subsets, which every model has",
            )


def attribute(members: Sequence[Trained], strains: Strains, batch_size: int | None = None) -> Attributed:
    """Split predicted changes over their sources, in double precision.

    Args:
        members: one or several models, on the device where this runs; the mean of several is split.
        strains: the strains, with genes of the cell graph and the covariates that the models see.
        batch_size: strains per pass; as many as fit into about a gigabyte where None.

    Raises:
        ConfigError: as ``check_attributable`` says.
    """
    check_attributable(members)
    shape = len(strains), len(members[0].phenotypes)
    wild_type, change = np.zeros(shape), np.zeros(shape)
    sources, nodes = list["pd.DataFrame"](), list["pd.DataFrame"]()
    for member in members:
        model = copy.deepcopy(member.model).double().requires_grad_(False).eval()
        normaliser = copy.deepcopy(member.normaliser).double().to(next(model.parameters()).device)
        for first, batch in _batches(model, strains, batch_size):
            part = _with_covariates(model, normaliser, batch)
            rows = slice(first, first + batch.num_strains)
            wild_type[rows] += part.wild_type / len(members)
            change[rows] += part.change / len(members)
            for found, table in ((sources, part.sources), (nodes, part.nodes)):
                found.append(table.assign(strain=table.strain + first, change=table.change / len(members)))
    return Attributed(wild_type, change, _added(sources, SOURCES), _added(nodes, NODES))


def _added(tables: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """Return what the same sources give in all tables together."""
    keys = list(columns[:-1])
    return _joined(tables, columns)[list(columns)].groupby(keys, sort=False)["change"].sum().reset_index()


def _joined(tables: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(tables) if tables else pd.DataFrame(columns=list(columns))


def _batches(model: StrainModel, strains: Strains, size: int | None) -> Iterator[tuple[int, GenotypeBatch]]:
    if size is None:
        rows = sum(model.cell[relation].num_dst for relation in model.cell.relations)
        numbers = rows * max(1, getattr(model.config, "layers", 1)) * getattr(model.config, "hidden", 64) * ROWS_KEPT
        size = int(np.clip(BYTES // max(1, numbers * torch.float64.itemsize), 1, 64))
    first, device = 0, next(model.parameters()).device
    for batch in batches(strains.numpy(), size):
        yield first, batch.to(device)
        first += batch.num_strains


def _with_covariates(model: StrainModel, normaliser: Normaliser, batch: GenotypeBatch) -> Attributed:
    """Split the changes of a batch from the wild type with the same covariates.

    The base of a model is not in the medium of a strain. What media change by themselves is therefore taken off again.
    """
    whole = _split(model, normaliser, batch)
    if batch.covariates is None:
        return whole
    left = None if batch.activities is None else batch.activities[:0]
    nothing = replace(batch, nodes=batch.nodes[:0], offsets=batch.offsets * 0, most=0, activities=left)
    media = _split(model, normaliser, nothing)
    tables = ([getattr(whole, name), getattr(media, name)] for name in ("sources", "nodes"))
    sources, nodes = ([one, other.assign(change=-other.change)] for one, other in tables)
    wild_type, change = whole.wild_type + media.change, whole.change - media.change
    return Attributed(wild_type, change, _added(sources, SOURCES), _added(nodes, NODES))


def _split(model: StrainModel, normaliser: Normaliser, batch: GenotypeBatch) -> Attributed:
    """Run a model on strains, and go back from each phenotype to the sources."""
    import pandas as pd

    with attributing() as found:
        y = normaliser.restore(model(batch).phenotypes)
        assert isinstance(y, PerturbedTensor)
        change_BT = y.base.new_zeros(y.shape) if y.delta is None else y.delta
        parts = [(t, *_of_phenotype(found, batch, change_BT[:, t])) for t in range(change_BT.shape[1])]
    wild_type, change = (x.detach().expand(change_BT.shape).cpu().numpy() for x in (y.base, change_BT))
    sources, nodes = ([pd.DataFrame({"phenotype": p[0], **one}) for p in parts for one in p[i]] for i in (1, 2))
    return Attributed(wild_type, change, _joined(sources, SOURCES), _joined(nodes, NODES))


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


NOTHING = {"term": "", "relation": "", "node_type": "", "node": -1, "target_type": "", "target": -1}


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
    left = change_B.cpu().numpy().copy()
    for one in sources:
        np.subtract.at(left, one["strain"], one["change"])
    (strain,) = np.nonzero(np.abs(left) > ROUNDING * max(1.0, float(np.abs(change_B.cpu().numpy()).max(initial=0))))
    named = f" of {', '.join(sorted(found.inexact))}" if found.inexact else ""
    return {"strain": strain, **NOTHING, "term": REMAINDER + named, "change": left[strain]}
