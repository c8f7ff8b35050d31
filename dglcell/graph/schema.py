"""Define the node types of a cell graph, its relations with their names, and the edges of one relation."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import GraphError

GENE, REACTION, METABOLITE = "gene", "reaction", "metabolite"
NODE_TYPES = (GENE, REACTION, METABOLITE)

Relation = tuple[str, str, str]  # canonical edge type: source node type, name, destination node type

CATALYSES: Relation = (GENE, "catalyses", REACTION)
CATALYSED_BY: Relation = (REACTION, "catalysed_by", GENE)
CONVERTS: Relation = (REACTION, "converts", METABOLITE)
CONVERTED_BY: Relation = (METABOLITE, "converted_by", REACTION)
METABOLIC_RELATIONS = (CATALYSES, CATALYSED_BY, CONVERTS, CONVERTED_BY)

WEIGHT = "weight"  # the edge feature that holds fixed edge weights, such as stoichiometry

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


@dataclass(frozen=True)
class Edges:
    """Hold the edges of one relation."""

    src: NDArray[np.int64]  #: [E] int64 source nodes
    dst: NDArray[np.int64]  #: [E] int64 destination nodes
    weight: NDArray[np.float32] | None = None  #: [E] float32 fixed edge weights, or None

    def __len__(self) -> int:
        return len(self.src)

    def select(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Edges:
        """Return the edges at ``rows`` (a mask or indices)."""
        return Edges(self.src[rows], self.dst[rows], None if self.weight is None else self.weight[rows])

    def reversed(self) -> Edges:
        """Return the edges in the opposite direction, with their weights."""
        return Edges(self.dst, self.src, self.weight)

    def symmetrised(self) -> Edges:
        """Return both directions of every edge, given each pair once; a self-loop stays one edge."""
        return self.joined(self.reversed().select(self.src != self.dst))

    def with_self_loops(self, num_nodes: int) -> Edges:
        """Return the edges with a self-loop added for every node that has none."""
        without = np.setdiff1d(np.arange(num_nodes, dtype=np.int64), self.src[self.src == self.dst])
        return self.joined(Edges(without, without))

    def joined(self, other: Edges) -> Edges:
        """Return these edges, which have no weights, followed by the others."""
        return Edges(np.concatenate([self.src, other.src]), np.concatenate([self.dst, other.dst]))

    def sorted(self) -> Edges:
        """Return the edges ordered by (destination, source)."""
        return self.select(np.lexsort((self.src, self.dst)))


def merge_pairs(edges: Edges, *, ordered: bool) -> Edges:
    """Keep each pair once, in the order and direction in which it first occurs.

    Where pairs are not ``ordered``, (a, b) and (b, a) are the same.
    """
    import pandas as pd

    ends = np.stack([edges.src, edges.dst])
    return edges.select(~pd.DataFrame((ends if ordered else np.sort(ends, axis=0)).T).duplicated().to_numpy())
