"""Read which edges a strain changes, as a table writes it: ``physical:YAL001C>YBR002W:0.3; physical:b0008<>b0114``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from dglcell.checks import AN_ACTIVITY, no_activities
from dglcell.errors import GenotypeError
from dglcell.graph.schema import Relation

EDGES = "edges"
"""The covariate of this name says which edges a strain changes."""

NO_EDGES = "none"
"""A strain that changes no edge has this in place of them; an empty cell means the same."""

EDGE_FORM = "RELATION:SOURCE>DESTINATION, or RELATION:SOURCE>DESTINATION:ACTIVITY, several separated by ;"
"""Messages say this of what they expect."""

WRITTEN = re.compile(r"\s*([^:<>]+):([^<>]+?)(<?>)([^<>]+?)(?::([^:<>]*))?\s*")


@dataclass(frozen=True)
class EdgeTarget:
    """Hold an edge that a strain removes or weakens, and the activity that is left."""

    relation: str | Relation  #: the relation, or its name where no other has it
    source: str | int  #: names of the nodes at its ends, or their indices
    destination: str | int
    #: what is left of the edge: 0 removes it, 1 is the wild type. A tensor without dimensions gets gradients.
    activity: Any = 0.0
    both: bool = False  #: whether the edge in the other direction is changed, too

    def __str__(self) -> str:
        name = self.relation if isinstance(self.relation, str) else self.relation[1]
        ends = f"{name}:{self.source}{'<>' if self.both else '>'}{self.destination}"
        return ends if float(self.activity) == 0 else f"{ends}:{float(self.activity):g}"


def read_edge_targets(text: str) -> list[EdgeTarget]:
    """Read the edges that a strain changes, separated by ``;``; the text may be empty, or ``none``.

    An edge is ``relation:source>destination``, with ``:activity`` behind it where it is not removed. ``<>`` in place of
    ``>`` means both directions.

    Raises:
        GenotypeError: an edge is written otherwise, or its activity is no amount.
    """
    targets = []
    for entry in (entry.strip() for entry in text.split(";")):
        if entry in ("", NO_EDGES):
            continue
        found = WRITTEN.fullmatch(entry)
        if found is None:
            raise GenotypeError("a changed edge cannot be read", got=f"'{entry}'", expected=EDGE_FORM)
        relation, source, arrow, destination, amount = found.groups()
        try:
            activity = float(amount or 0)
        except ValueError:
            activity = np.nan
        if no_activities(np.array(activity)):
            what, do = f"the activity of an edge is no amount: '{entry}'", f"write {EDGE_FORM}"
            raise GenotypeError(what, got=f"'{amount}'", expected=AN_ACTIVITY, do=do)
        targets.append(EdgeTarget(relation.strip(), source.strip(), destination.strip(), activity, arrow == "<>"))
    return targets


def edge_text(text: str) -> str:
    """Return the same edges in the order of their names, so that equal changes are equal texts."""
    return "; ".join(sorted(map(str, read_edge_targets(text)))) or NO_EDGES
