"""Define the node types and relations of a cell graph, which names a relation may have, and changes of its edges."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from dglcell.checks import AN_ACTIVITY, no_activities
from dglcell.errors import GenotypeError, GraphError

GENE, REACTION, METABOLITE = "gene", "reaction", "metabolite"
NODE_TYPES = (GENE, REACTION, METABOLITE)

Relation = tuple[str, str, str]
"""Canonical edge type: (source node type, name, destination node type)."""

CATALYSES: Relation = (GENE, "catalyses", REACTION)
CATALYSED_BY: Relation = (REACTION, "catalysed_by", GENE)
CONVERTS: Relation = (REACTION, "converts", METABOLITE)
CONVERTED_BY: Relation = (METABOLITE, "converted_by", REACTION)
METABOLIC_RELATIONS = (CATALYSES, CATALYSED_BY, CONVERTS, CONVERTED_BY)

WEIGHT = "weight"
"""The edge feature of this name holds fixed edge weights (stoichiometry, network scores)."""

_MODULE_NAMES = """
add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches eval extra_repr float
forward get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict modules mtia named_buffers
named_children named_modules named_parameters parameters register_backward_hook register_buffer register_forward_hook
register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook
register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module register_parameter
register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule share_memory
state_dict to to_empty train training type xpu zero_grad
"""
RESERVED = frozenset(_MODULE_NAMES.split())
"""``torch.nn.Module`` uses these names itself; they are written out, so that configurations are read without torch."""

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")


def gene_relation(name: str) -> Relation:
    """Return the gene–gene relation called ``name``."""
    return (GENE, name, GENE)


def check_relation_name(name: str, *, where: str) -> None:
    """Refuse names that cannot key a module dictionary.

    Relations name submodules, so a name that ``torch.nn.Module`` already uses (``train``, ``type``, ``to``)
    would break every network built over the graph.
    """
    if not _IDENTIFIER.fullmatch(name):
        expected = "a lower-case letter, then lower-case letters, digits and underscores"
        do = "rename the network, channel or value"
        raise GraphError(f"{where}: '{name}' cannot name a relation", expected=expected, do=do)
    if name in RESERVED or name in {relation[1] for relation in METABOLIC_RELATIONS}:
        expected = "a name that neither `torch.nn.Module` nor the metabolic relations use"
        do = f"choose another, e.g. '{name}_network'"
        raise GraphError(f"{where}: the relation name '{name}' is taken", expected=expected, do=do)


# Edges that a strain changes, as a table writes them: ``physical:YAL001C>YBR002W:0.3; physical:b0008<>b0114``.


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
