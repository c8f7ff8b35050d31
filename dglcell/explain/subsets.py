"""Say which changes of a strain a predicted change comes from, by predicting all their subsets.

The smallest subset whose predicted change is most of the whole change is responsible. The interaction of a subset S is
what its prediction has beyond all that smaller subsets do: ``sum of (-1)^(|S| - |T|) y(T) over T in S``; of a pair it
is ``y(both) - y(first) - y(second) + y(wild type)``. The interactions of all subsets but the empty one sum to the
change.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.data.strains import Strains
from dglcell.errors import GenotypeError, count, listing
from dglcell.explain.tables import text_of, written
from dglcell.graph.vocabulary import Vocabulary
from dglcell.prediction.columns import GenotypeTable
from dglcell.prediction.conditions import completion_of
from dglcell.prediction.predict import predict_rows
from dglcell.training.checkpoint import Trained

if TYPE_CHECKING:
    import pandas as pd

MOST_CHANGES = 6
"""A strain that changes more genes than this has too many subsets: there are 2 to the power of their number."""

ROUNDING = 1e-6
"""A smaller change of a prediction is rounding, which nothing is responsible for."""


def explain(members: Sequence[Trained], strains: Strains, batch_size: int | None = None) -> pd.DataFrame:
    """Predict all subsets of the changes of strains, and mark those that are responsible.

    Args:
        members: one or several models, on the device where this runs; several are explained by their mean.
        strains: the strains, with genes of the cell graph and the conditions that the models see.
        batch_size: strains per forward pass; as many as fit into memory where None.

    Returns:
        For each strain and phenotype the subsets of its changes, small ones first: strain (its number), genes,
        phenotype, subset, size, predicted, change (from the wild type in the same conditions), part (of the change of
        the strain), interaction and responsible.

    Raises:
        GenotypeError: a strain changes more than ``MOST_CHANGES`` genes.
    """
    import pandas as pd

    places = _changes(strains)
    _check(places)
    subsets, owners = _subsets_of(strains, places)
    complete = completion_of(members[0])
    subsets = subsets if complete is None else complete(subsets)
    rows = GenotypeTable.of(subsets)
    columns = predict_rows(members, rows, batch_size=batch_size)
    genes, names = ([written(one) for one in some.changes] for some in (strains, subsets))
    tables = []
    for strain, of_strain in enumerate(places):
        chosen = np.flatnonzero(owners == strain)
        sizes = np.array([len(one) for one in _every(len(of_strain))])
        for phenotype in members[0].phenotypes:
            predicted = columns[f"predicted_{phenotype}"][chosen].astype(float)
            change = predicted - predicted[0]
            part = np.full(len(change), np.nan) if abs(change[-1]) <= ROUNDING else change / change[-1]
            table = {
                "strain": strain,
                "genes": genes[strain],
                "phenotype": phenotype,
                "subset": [names[row] for row in chosen],
                "size": sizes,
                "predicted": predicted,
                "change": change,
                "part": part,
                "interaction": _interactions(change),
                "responsible": _responsible(part, sizes),
            }
            tables.append(pd.DataFrame(table))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=COLUMNS)


COLUMNS = (
    "strain", "genes", "phenotype", "subset", "size", "predicted", "change", "part", "interaction", "responsible",
)  # fmt: skip
"""These are the columns of the table of `explain`."""


def show(found: pd.DataFrame, genes: Vocabulary, splits: pd.DataFrame | None = None) -> str:
    """Return a table of `explain` as text for a terminal: a few strains in full, and more of them as a list.

    Args:
        found: the table.
        genes: names of genes.
        splits: how the same changes are split over sources, as ``tables.split`` gives it; None where they cannot be.
    """
    import pandas as pd

    keys = ["strain", "phenotype"]
    groups = [rows for _, rows in found.groupby(keys, sort=False)]
    if len(groups) <= 3:
        by_group = {} if splits is None else dict(list(splits.groupby(keys)))
        return "\n\n".join(_in_full(rows, genes, by_group.get(tuple(rows[keys].iloc[0]))) for rows in groups)
    lines = [
        {
            "strain": _all_called(rows["genes"].iloc[0], genes),
            "phenotype": rows["phenotype"].iloc[0],
            "predicted": f"{rows['predicted'].iloc[-1]:.4g}",
            "change": f"{rows['change'].iloc[-1]:+.4g}",
            "responsible": _named(rows, genes) or "-",
        }
        for rows in groups
    ]
    return pd.DataFrame(lines).to_string(index=False)


def _in_full(rows: pd.DataFrame, genes: Vocabulary, split: pd.DataFrame | None) -> str:
    wild, whole = rows.iloc[0], rows.iloc[-1]
    lines = [
        f"{_all_called(whole['genes'], genes)}: {whole['phenotype']} {whole['predicted']:.4g}, "
        f"of the wild type {wild['predicted']:.4g}, change {whole['change']:+.4g}"
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
    named = []
    for part in changed.split(";") if changed else ():
        gene, colon, left = part.partition(":")
        standard = genes.standard(gene)
        named.append((f"{standard} ({gene})" if standard else gene) + colon + left)
    return ", ".join(named) or "the wild type"


def _changes(strains: Strains) -> list[NDArray[np.int64]]:
    """Return for each strain where the different genes that it changes stand among all targets."""
    arrays, found = strains.numpy(), list[NDArray[np.int64]]()
    for first, last in itertools.pairwise(arrays.offsets):
        _, places = np.unique(arrays.targets[first:last], return_index=True)
        found.append(first + np.sort(places))
    return found


def _check(places: Sequence[NDArray[np.int64]]) -> None:
    wrong = [strain for strain, of_strain in enumerate(places) if len(of_strain) > MOST_CHANGES]
    if wrong:
        raise GenotypeError(
            "a strain with so many changes has too many subsets",
            got=f"{count(len(places[wrong[0]]), 'changed gene')} in strain {listing(wrong)}",
            expected=f"at most {MOST_CHANGES} changed genes",
            do="leave these strains out",
        )


def _every(number: int) -> list[tuple[int, ...]]:
    """Return all subsets of so many changes, small ones first."""
    return [chosen for size in range(number + 1) for chosen in itertools.combinations(range(number), size)]


def _subsets_of(strains: Strains, places: Sequence[NDArray[np.int64]]) -> tuple[Strains, NDArray[np.int64]]:
    """Return all subsets of the changes of strains as strains in the conditions of their owners, and the owners."""
    chosen = [of_strain[list(subset)] for of_strain in places for subset in _every(len(of_strain))]
    owners = np.repeat(np.arange(len(places)), [2 ** len(of_strain) for of_strain in places])
    arrays = strains.numpy()
    of_owner = arrays.take(owners)
    targets = np.concatenate([*chosen, np.zeros(0, np.int64)]).astype(np.int64)
    subsets = of_owner.with_(
        targets=arrays.targets[targets],
        offsets=np.concatenate([[0], np.cumsum([len(one) for one in chosen])]).astype(np.int64),
        strengths=None if arrays.strengths is None else arrays.strengths[targets],
        columns=of_owner.columns,
    )
    return subsets, owners


def _interactions(change: NDArray[Any]) -> NDArray[np.float64]:
    """Return what each subset does beyond all smaller ones inside it, in the order of ``_every``."""
    every = _every(len(change).bit_length() - 1)
    found: dict[tuple[int, ...], float] = {}
    for subset, value in zip(every, change, strict=True):
        inside = set(subset)
        found[subset] = float(value) - sum(of for smaller, of in found.items() if inside.issuperset(smaller))
    return np.array(list(found.values()))


def _responsible(part: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each subset is one of the smallest that take most of the change; none where there is no change."""
    enough = part >= 0.9  # so it was measured
    return enough & (sizes == sizes[enough].min(initial=len(part)))
