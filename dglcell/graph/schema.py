"""Node types and relations of a cell graph, and which names a relation may have."""

from __future__ import annotations

import re

import torch

from dglcell.errors import GraphError

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
"""Name of the edge feature that holds fixed edge weights (stoichiometry, network scores)."""

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")


def gene_relation(name: str) -> Relation:
    """The gene–gene relation called ``name``."""
    return (GENE, name, GENE)


def check_relation_name(name: str, *, where: str) -> None:
    """Refuse names that cannot key a module dictionary.

    Relations name submodules, so a name that ``torch.nn.Module`` already uses (``train``, ``type``, ``to``)
    would break every network built over the graph.

    Args:
        name: proposed relation name.
        where: configuration key or file it comes from, for the message.

    Raises:
        GraphError: the name is not a lower-case identifier, or is taken.
    """
    if not _IDENTIFIER.fullmatch(name):
        raise GraphError(
            f"{where}: '{name}' cannot name a relation",
            expected="a lower-case letter, then lower-case letters, digits and underscores",
            do="rename the network, channel or value",
        )
    taken = hasattr(torch.nn.Module, name) or name in {relation[1] for relation in METABOLIC_RELATIONS}
    if taken:
        raise GraphError(
            f"{where}: the relation name '{name}' is taken",
            expected="a name that neither `torch.nn.Module` nor the metabolic relations use",
            do=f"choose another, e.g. '{name}_network'",
        )
