"""Give rounds of flux balance what they start from: the wild type's fluxes, and what limits weakened reactions."""

from __future__ import annotations

import logging

import numpy as np
import torch
from torch import Tensor

from dglcell.config.experiment import Config
from dglcell.data.sources.fba import FluxProblem, FluxSolver
from dglcell.errors import count
from dglcell.graph.media import Media
from dglcell.graph.metabolism import model_reaction
from dglcell.graph.model_files import read_model
from dglcell.graph.schema import CATALYSES, METABOLITE, REACTION
from dglcell.graph.wild_type import nodes_of_reactions, wild_type_balance
from dglcell.models.model import StrainModel
from dglcell.nn.flux_rounds import FluxRounds
from dglcell.training.prepare import Prepared

log = logging.getLogger("dglcell")

SOLVED_TOGETHER = 2048
"""Flux balance is solved for so many strains before training: few large problems are faster than many small ones."""

TOLERANCE, TIME_LIMIT = 1e-9, 60.0
"""These are the solver's tolerance, and the seconds that it has for one problem."""

UNLIMITED = 1e6
"""A reaction without a limit has this capacity, because checkpoints hold finite numbers only."""


def start_flux_rounds(model: StrainModel, config: Config, prepared: Prepared) -> None:
    """Store the wild type's flux balance in the model's rounds, if it has any, and solve that of all strains.

    Args:
        model: a new model.
        config: configuration of the run.
        prepared: the data that the model is trained on.

    Raises:
        GraphError: the metabolic model does not grow.
    """
    rounds = model.find(FluxRounds)
    if rounds is None:
        return
    assert config.cell.model is not None
    reactions, metabolites = (prepared.cell.vocabularies[kind].names for kind in (REACTION, METABOLITE))
    metabolism = read_model(config.cell.model, config.paths.raw)
    own = metabolism.slim_optimize() if rounds.limited else 1.0
    media = Media.of(metabolism, config.cell.media, "cell.media") if config.cell.media else None
    wild_types, growth = [], []
    for uptakes in media.uptakes.tolist() if media else [[]]:
        for exchange, uptake in zip(media.exchanges if media else (), uptakes, strict=True):
            metabolism.reactions.get_by_id(exchange).lower_bound = -uptake
        wild_types.append(wild_type_balance(metabolism, reactions, metabolites))
        growth.append(metabolism.slim_optimize() / own if rounds.limited else 1.0)
    rounds.take(wild_types, _capacities(config, prepared) if rounds.limited else None, torch.tensor(growth))
    log.info("the flux balance of each strain is solved in %s", count(rounds.rounds, "round"))
    for some in torch.arange(len(prepared.dataset)).split(SOLVED_TOGETHER):
        rounds(model.cell, model.in_media(prepared.dataset.take(some).perturbations))


def _capacities(config: Config, prepared: Prepared) -> Tensor:
    """Return the largest flux that the wild type can need of each reaction node in each medium, [media or 1, N].

    That of uptake is the largest in any medium, of which a medium has a share.
    """
    assert config.cell.model is not None
    names = prepared.cell.vocabularies[REACTION].names
    metabolism = read_model(config.cell.model, config.paths.raw)
    columns = np.array([metabolism.reactions.index(model_reaction(name)) for name in names])
    backward = np.array([name.endswith("-") for name in names])
    nodes = np.array(nodes_of_reactions(names))
    enzymes = np.unique(columns[np.unique(prepared.cell.edges(CATALYSES).dst)])
    media = Media.of(metabolism, config.cell.media, "cell.media") if config.cell.media else None
    places = [metabolism.reactions.index(exchange) for exchange in media.exchanges] if media else []
    problem = FluxProblem.of(metabolism, tolerance=TOLERANCE, time_limit=TIME_LIMIT)
    rows = []
    for uptakes in media.uptakes if media else [np.zeros(0)]:
        problem.lower[places] = -uptakes
        found = FluxSolver(problem).capacities(enzymes, lambda: None)
        limits = np.nan_to_num(found[(~backward).astype(int), columns], nan=UNLIMITED, posinf=UNLIMITED)
        if media:
            largest = dict(zip(places, media.uptakes.max(axis=0).tolist(), strict=True))
            uptake = [largest.get(column, np.inf) for column in columns.tolist()]
            limits = np.where(backward, np.minimum(limits, uptake), limits)
        rows.append(np.minimum(limits, UNLIMITED) / nodes)
    return torch.from_numpy(np.stack(rows)).float()
