"""Give rounds of flux balance what they start from: the wild type's fluxes, and what limits weakened reactions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from dglcell.config.experiment import Config
from dglcell.data.sources.fba import FluxProblem, FluxSolver
from dglcell.data.strains import Strains
from dglcell.errors import GraphError, count, listing
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.media import Media
from dglcell.graph.metabolism import model_reaction
from dglcell.graph.model_files import read_model
from dglcell.graph.schema import CATALYSES, METABOLITE, REACTION
from dglcell.graph.wild_type import nodes_of_reactions, wild_type_balance
from dglcell.models.model import StrainModel
from dglcell.nn.flux_rounds import FluxRounds
from dglcell.training.prepare import Prepared
from dglcell.training.task import StrainTask

if TYPE_CHECKING:
    from cobra import Model

log = logging.getLogger("dglcell")

SOLVED_TOGETHER = 2048
"""Flux balance is solved for so many strains before training: few large problems are faster than many small ones."""

TOLERANCE, TIME_LIMIT = 1e-9, 60.0
"""These are the solver's tolerance, and the seconds that it has for one problem."""

LEAST_GROWTH = 1e-6
"""The wild type grows if it grows faster than this, per hour."""

UNLIMITED = 1e6
"""A reaction without a limit has this capacity, because checkpoints hold finite numbers only."""


def start_flux_rounds(model: StrainModel, config: Config, prepared: Prepared) -> Tensor | None:
    """Store the wild type's flux balance in the model's rounds, if it has any, and solve that of all strains.

    Returns:
        [S, P] growth of all strains after each part of the rounds; None without rounds.

    Raises:
        GraphError: the metabolic model does not grow, or not in one of its media.
    """
    rounds = model.find(FluxRounds)
    if rounds is None:
        return None
    assert config.cell.model is not None
    metabolism = read_model(config.cell.model, config.paths.raw)
    media = Media.of(metabolism, config.cell.media, "cell.media") if config.cell.media else None
    reactions, metabolites = (prepared.cell.vocabularies[kind].names for kind in (REACTION, METABOLITE))
    own = metabolism.slim_optimize() if rounds.limited else 1.0
    wild_types, growth, capacities = [], [], []
    for number, uptakes in enumerate(media.uptakes.tolist() if media else [[]]):
        for exchange, uptake in zip(media.exchanges if media else (), uptakes, strict=True):
            metabolism.reactions.get_by_id(exchange).lower_bound = -uptake
        if media:
            _check_growth(metabolism, media.names[number])
        wild_types.append(wild_type_balance(metabolism, reactions, metabolites))
        if rounds.limited:
            growth.append(metabolism.slim_optimize() / own)
            capacities.append(_capacities(metabolism, prepared.cell, media))
    limits = (torch.stack(capacities), torch.tensor(growth)) if rounds.limited else ()
    rounds.take(wild_types, *limits)
    log.info("the flux balance of each strain is solved in %s", count(rounds.rounds, "round"))
    return _solve(model, rounds, prepared.dataset)


def _solve(model: StrainModel, rounds: FluxRounds, strains: Strains) -> Tensor:
    """Return the growth of all strains after each part of the rounds, [S, P]; the rounds remember it."""
    there = strains.to(rounds.reactions.device)
    return torch.cat(
        [
            rounds(model.cell, model.in_conditions(there.take(some).perturbations))[0]
            for some in torch.arange(len(strains), device=rounds.reactions.device).split(SOLVED_TOGETHER)
        ]
    )


class SolveAhead(pl.Callback):
    """Solve the flux balance of all strains of a continued run, once it has its weights."""

    def __init__(self, strains: Strains) -> None:
        self.strains = strains

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Solve them, if the model has rounds."""
        assert isinstance(module, StrainTask)
        rounds = module.model.find(FluxRounds)
        if rounds is not None:
            _solve(module.model, rounds, self.strains)


def _check_growth(metabolism: Model, medium: str) -> None:
    growth = metabolism.slim_optimize()
    if not growth > LEAST_GROWTH:  # also where it is not a number, because no flux is balanced
        raise GraphError(
            f"cells cannot grow in the medium '{medium}', so that growth in it means nothing",
            got="no balanced flux" if np.isnan(growth) else f"a growth of {growth:.3g} per hour",
            expected=f"more than {LEAST_GROWTH:g} per hour",
            do=f"let `cell.media.{medium}` take up what they can grow on",
        )


def _capacities(metabolism: Model, cell: CellGraph, media: Media | None) -> Tensor:
    """Return the largest flux that the wild type can need of each reaction node in the medium of ``metabolism``, [N].

    That of uptake is the largest in any medium, of which a medium has a share.
    """
    names = cell.vocabularies[REACTION].names
    columns = np.array([metabolism.reactions.index(model_reaction(name)) for name in names])
    backward = np.array([name.endswith("-") for name in names])
    enzymes = np.unique(columns[np.unique(cell.edges(CATALYSES).dst)])
    solver = FluxSolver(FluxProblem.of(metabolism, tolerance=TOLERANCE, time_limit=TIME_LIMIT))
    found = solver.capacities(enzymes, lambda: None)[(~backward).astype(int), columns]
    if np.isnan(found).any():
        lacking = [name for name, capacity in zip(names, found.tolist(), strict=True) if np.isnan(capacity)]
        log.warning("the solver found no capacity of %s: strengths do not limit them", listing(lacking))
    limits = np.nan_to_num(found, nan=UNLIMITED, posinf=UNLIMITED)
    if media:
        largest = dict(zip(media.exchanges, media.uptakes.max(axis=0).tolist(), strict=True))
        uptake = [largest.get(model_reaction(name), np.inf) for name in names]
        limits = np.where(backward, np.minimum(limits, uptake), limits)
    return torch.from_numpy(np.minimum(limits, UNLIMITED) / nodes_of_reactions(names)).float()
