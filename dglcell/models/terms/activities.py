"""Learn from covariates what is left of weakened genes."""

from __future__ import annotations

from dataclasses import replace

import torch

from dglcell.graph.resident import ResidentCell
from dglcell.models.terms.config import CovariatesConfig
from dglcell.models.terms.covariates import Conditions, set_to_zero
from dglcell.models.terms.term import Surroundings, Term, Training
from dglcell.nn.blocks import mlp
from dglcell.perturbation.genotype import GenotypeBatch


class Activities(Term):
    r"""Learn what is left of a strain's genes from some of its conditions, such as an allele or features of a guide.

    .. math:: s = \sigma\big(\operatorname{logit}(s_0) + f(c)\big)

    with the network f, which starts at zero, and the strength :math:`s_0` that the table gives, or else the prior. All
    strains with the same allele have the same strength, and a guide's strength follows from its features, so that no
    measurement has a number of its own. What is deleted stays deleted, and what is not weakened (1 or more) stays so.
    Where the table gives strengths (``strength_curves``), strains without any delete all of their genes.
    """

    Config = CovariatesConfig
    config: CovariatesConfig
    learns_activities = True

    def __init__(self, config: CovariatesConfig, surroundings: Surroundings) -> None:
        super().__init__(config, surroundings)
        self.conditions = Conditions(config.conditions or {}, config.conditions_of_strength())
        hidden = [config.strength_hidden] if config.strength_hidden else []
        self.network = mlp([self.conditions.width, *hidden, 1], surroundings.activation, 0.0)

    def start(self) -> None:
        set_to_zero(self.network[-1])

    def fit(self, train: Training, cell: ResidentCell) -> None:
        self.conditions.fit_to(train)

    def strains(self, genotypes: GenotypeBatch) -> GenotypeBatch:
        """Return the strains with the strengths that are learned."""
        change_B = self.network(self.conditions.of(genotypes)).squeeze(1)
        change_P = change_B[genotypes.strains]
        given_P = genotypes.strengths
        if given_P is None and self.config.strength_curves:
            return genotypes
        if given_P is None:
            return replace(genotypes, strengths=torch.sigmoid(change_P + _logit(self.config.strength_prior)))
        weakened_P = (given_P > 0) & (given_P < 1)
        inside_P = torch.where(weakened_P, given_P, 0.5).to(change_P)
        return replace(
            genotypes, strengths=torch.where(weakened_P, torch.sigmoid(change_P + inside_P.logit()), given_P)
        )


def _logit(share: float) -> float:
    return float(torch.tensor(share, dtype=torch.float64).logit())
