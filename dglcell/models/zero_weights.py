"""How much the pairs that are no edges count when DANGO reconstructs a network: λ, by rule or by configuration."""

from __future__ import annotations

from collections.abc import Mapping

from dglcell.errors import ConfigError
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.growth import share_of_zeros_gone

UNCERTAIN, CERTAIN = 0.1, 1.0
THRESHOLD = 0.01
"""More of a network's zeros than this became edges between two versions: its zeros are uncertain."""

CHANNEL_ZERO_WEIGHTS = {
    "neighborhood": UNCERTAIN,
    "coexpression": UNCERTAIN,
    "experimental": UNCERTAIN,
    "fusion": CERTAIN,
    "cooccurence": CERTAIN,
    "database": CERTAIN,
}
"""λ by channel of STRING, from its growth between versions 9.1 and 11.0, as the torchcell project found it among the
genes of both. The code of DANGO's authors takes 1 for ``neighborhood``."""


def zero_weight(relation: str, given: Mapping[str, float]) -> float:
    """λ of one network.

    Args:
        relation: its name; see ``channel_of``.
        given: relation → λ from the configuration, which comes first.

    Raises:
        ConfigError: nothing is given, and the name ends in no channel.
    """
    if relation in given:
        return given[relation]
    channel = channel_of(relation)
    if channel is not None:
        return CHANNEL_ZERO_WEIGHTS[channel]
    raise ConfigError(
        f"how much do the pairs that are no edges of '{relation}' count when it is reconstructed?",
        got=f"a name that ends in no channel of STRING ({', '.join(CHANNEL_ZERO_WEIGHTS)})",
        expected=f"{UNCERTAIN} for a network that still grows by much, {CERTAIN} for one that hardly does",
        do=f"set `model.zero_weights: {{{relation}: {CERTAIN}}}`, or leave the network out of `model.relations`",
    )


def channel_of(relation: str) -> str | None:
    """The channel of STRING that the name of a network is, or ends in after an underscore; None for other names."""
    found = (c for c in CHANNEL_ZERO_WEIGHTS if relation == c or relation.endswith(f"_{c}"))
    return next(found, None)


def zero_weight_from_growth(old: tuple[CellGraph, str], new: tuple[CellGraph, str], genes: str = "common") -> float:
    """λ of a network from two versions of it (Zhang et al. 2020, *DANGO*): 0.1 if more than 1 % of the zeros are gone.

    Args:
        old, new, genes: see ``share_of_zeros_gone``.
    """
    return UNCERTAIN if share_of_zeros_gone(old, new, genes) > THRESHOLD else CERTAIN
