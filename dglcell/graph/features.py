"""Compute fixed input features of nodes from the metabolic model of the wild type."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dglcell.errors import GraphError
from dglcell.graph.metabolism import model_reaction
from dglcell.graph.schema import METABOLITE, REACTION
from dglcell.graph.tables import standardised

if TYPE_CHECKING:
    from cobra import Model


WILD_TYPE = "wild_type"
"""This name, in place of a table of features, stands for what `wild_type_features` computes."""

Fluxes = dict[str, float]


def wild_type_features(model: Model, node_type: str, names: Sequence[str]) -> Tensor:
    """Return standardised features of nodes, from fluxes of the cell without deletions and from the model.

    The fluxes are those of the fastest growth with the least total flux (Lewis et al. 2010, *Omic data from evolved E.
    coli are consistent with computed optimal growth*). No deletion is computed, so that they say nothing of any strain
    but the wild type.

    Returns:
        The features, [N, F] float32, of named nodes of the type ``reaction`` or ``metabolite``.
    """
    if node_type not in COLUMNS:
        what, do = f"there are no features `{WILD_TYPE}` of the node type '{node_type}'", "give a table in"
        raise GraphError(what, expected=" or ".join(COLUMNS), do=f"{do} `model.features.{node_type}`")
    rows = COLUMNS[node_type](model, wild_type_fluxes(model), names)
    return torch.as_tensor(standardised(np.array(rows, dtype=np.float64))).float()


def wild_type_fluxes(model: Model) -> Fluxes:
    """Return the flux of every reaction of the model at its fastest growth, with the least total flux."""
    from cobra.exceptions import OptimizationError
    from cobra.flux_analysis import pfba

    try:
        fluxes = pfba(model).fluxes.to_dict()
    except OptimizationError as error:
        raise GraphError("the wild type has no fluxes", got=error, expected="a model that grows") from error
    return {name: flux if abs(flux) > 1e-9 else 0.0 for name, flux in fluxes.items()}  # the solver's zero


def _of_reactions(model: Model, fluxes: Fluxes, names: Sequence[str]) -> list[list[float]]:
    # The nodes of a reaction and direction share its flux equally.
    rows, complexes = [], Counter((model_reaction(name), name[-1]) for name in names)
    for name in names:
        reaction, sign = model.reactions.get_by_id(model_reaction(name)), 1 if name[-1] == "+" else -1
        flux, amounts = max(0.0, sign * fluxes[reaction.id]), [sign * n for n in reaction.metabolites.values()]
        reversible = reaction.lower_bound < 0 < reaction.upper_bound
        ends = sum(amount < 0 for amount in amounts), sum(amount > 0 for amount in amounts)
        of_model = complexes[reaction.id, name[-1]], reaction.boundary, reaction.objective_coefficient != 0
        rows.append([sign, flux, math.log1p(flux), flux > 0, reversible, *ends, *of_model])
    return rows


def _of_metabolites(model: Model, fluxes: Fluxes, names: Sequence[str]) -> list[list[float]]:
    goal = [reaction for reaction in model.reactions if reaction.objective_coefficient]
    rows = []
    for name in names:
        metabolite = model.metabolites.get_by_id(name)
        flux = sum(abs(fluxes[r.id] * r.metabolites[metabolite]) for r in metabolite.reactions) / 2
        needed = sum(reaction.metabolites.get(metabolite, 0.0) for reaction in goal)
        rows.append([flux, math.log1p(flux), flux > 0, math.log1p(len(metabolite.reactions)), needed])
    return rows


COLUMNS: dict[str, Callable[[Model, Fluxes, Sequence[str]], list[list[float]]]] = {
    REACTION: _of_reactions,
    METABOLITE: _of_metabolites,
}
"""This maps a node type to a row of numbers for each of its nodes."""
