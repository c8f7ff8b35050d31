"""Turn scores into phenotypes: links that compose over deletions, and the least fit of a strain's measured parts."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE, REACTION
from dglcell.models.config import LinkConfig
from dglcell.models.terms.measured import LEAST, WILD_TYPE, MeasuredStrains
from dglcell.models.terms.term import Seen, Surroundings, Term, Training
from dglcell.nn.config import AUTO_LINK, COMPARING_LINKS, LINKS
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.rules import from_source

logger = logging.getLogger("dglcell")

OFFSET = 2.0
"""This is c of ``saturation``: scores from about -1 up hardly change the phenotype."""

SHARPNESS = 4.0
"""This is k of ``minimum``: only one of two values counts where they differ by more than a factor of about 2."""

FLOOR = 1e-3
"""Smaller values are raised to this before they are bounded, as their powers overflow."""

LEAK = 0.05
"""``bounded`` has this slope beyond the bounds while a model trains, so that scores far outside have a gradient."""

PARTS, WHOLES = "measured parts", "measured strains that lose more"
"""These are names of what bounds phenotypes."""

LARGEST = 20.0
"""Scores are cut off at this value: its exponential is far beyond any phenotype, and finite."""


def log(score: Tensor) -> Tensor:
    r"""Return :math:`y = e^\eta`: where scores of deletions add up, their effects on the phenotype multiply."""
    return score.clamp(max=LARGEST).exp()


def logistic(score: Tensor) -> Tensor:
    r"""Return :math:`y = 2\sigma(2\eta) = 1 + \tanh\eta`: between 0 and twice the wild type, of slope 1 there."""
    return 1 + score.tanh()


def saturation(score: Tensor) -> Tensor:
    r"""Return :math:`y = \sigma(c + \eta) / \sigma(c)`, c = 2.

    Small effects are buffered, larger ones multiply, and nothing raises the phenotype by more than 14 %.
    """
    return torch.sigmoid(OFFSET + score) * (1 + math.exp(-OFFSET))


def minimum(value: Tensor, bound: Tensor) -> Tensor:
    r"""Return a smooth minimum of two phenotypes: :math:`(b^{-k} + s^{-k} - 1)^{-1/k}`, k = 4.

    It is Schweizer and Sklar's triangular norm, which lies between the product (k → 0) and the minimum (k → ∞). Without
    a bound (b = 1) it is s, what a strain would have by itself. Without an effect (s = 1) it is b, what its measured
    parts have: at most 1, so that the root exists. It is at most either where both are at most 1.
    """
    s, b = value.clamp(min=FLOOR), bound.clamp(min=FLOOR, max=1.0)
    return (s.pow(-SHARPNESS) + b.pow(-SHARPNESS) - 1).pow(-1 / SHARPNESS)


def bounded(score: Tensor, least: Tensor, largest: Tensor, slope: float = 0.0) -> Tensor:
    r"""Return :math:`y = \min(b, \max(a, 1 + \eta))`: exactly a bound for any score that is low or high enough.

    Args:
        score: scores η of the strains.
        least: lower bound a.
        largest: b; it takes precedence where it is below a, which noise in labels can cause.
        slope: slope outside of the bounds.
    """
    free = 1 + score
    held = free.maximum(least).minimum(largest)
    return held + slope * (free - held)


class Link(Term):
    r"""Turn the scores :math:`\eta` of a model into normalised phenotypes, with one link for each phenotype.

    Links but ``identity`` are for phenotypes relative to the wild type, whose value is 1. The score of the strain
    without deletions is taken off every score, so that this strain has the wild type's value exactly. A link gives
    original units; these are normalised here, once, and nowhere else on the way to the loss.

    ============  ==================================================  ====================  =======================
    name          y                                                   bounds                two effects
    ============  ==================================================  ====================  =======================
    identity      :math:`\eta`, in normalised units                   none                  add up
    log           :math:`e^\eta`                                      above 0               multiply
    logistic      :math:`1 + \tanh\eta`                               0 to 2                multiply, then level out
    saturation    :math:`\sigma(2 + \eta) / \sigma(2)`                0 to 1.14             are buffered, then multiply
    minimum       saturation, and at most what parts have             0 to 1.14             the worst decides
    bounded       :math:`1 + \eta` between what measured strains say  0 to 1                the worst decides
    ============  ==================================================  ====================  =======================

    ``auto`` is ``minimum`` for phenotypes that look like a fitness, or ``saturation`` where strains have activities or
    covariates, and ``identity`` for all others: scores of interactions, and classes, whose link is the normaliser's
    (``data.normalise: logistic``). Strains lose reactions, or genes where the model reads no reactions; that decides
    which measured strains are parts of a strain. A model that was trained on strains with activities or covariates
    compares them with none. Parts of strains are told by the genes that they lack, which does not say how weak these
    are, or in which medium.

    Attributes:
        codes: [T] number of each phenotype's link in ``LINKS``.
        shift, scale: [T] of the normalisation.
        measured: the training strains, for ``minimum`` and ``bounded``; else None.
    """

    Config = LinkConfig
    codes: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, config: LinkConfig, surroundings: Surroundings) -> None:
        super().__init__(config, surroundings)
        outputs, self.link = surroundings.outputs, config.link
        self.register_buffer("codes", torch.zeros(outputs, dtype=torch.uint8))
        self.register_buffer("shift", torch.zeros(outputs))
        self.register_buffer("scale", torch.ones(outputs))
        self.measured = None
        if self.link in COMPARING_LINKS:
            reactions = surroundings.metabolism and REACTION in surroundings.cell.num_nodes
            node_type = REACTION if reactions else GENE
            self.measured = MeasuredStrains(outputs, node_type, whole=self.link == "bounded")
            self.fitted = tuple(f"measured.{name}" for name in ("genes", "offsets", "labels"))

    def fit(self, train: Training, cell: ResidentCell) -> None:
        """Take each phenotype's link, the units, and the strains to compare with."""
        strains, names = train.strains, list(train.strains.phenotypes)
        deletions = strains.activities is None and not strains.covariates
        auto = "minimum" if deletions else "saturation"
        pairs = zip(names, train.fitness_like, strict=True)
        links = [_link_of(self.link, name, auto, fitness_like=like) for name, like in pairs]
        self.choose(links, train.normaliser.shift, train.normaliser.scale)
        if self.link == AUTO_LINK:
            logger.info("links: %s", ", ".join(f"{name} {one}" for name, one in zip(names, links, strict=True)))
        if self.measured is not None and deletions and not set(links).isdisjoint(COMPARING_LINKS):
            self.measured.remember(cell, strains.perturbations, strains.labels)

    def choose(self, links: Sequence[str], shift: Tensor, scale: Tensor) -> None:
        """Set each phenotype's link, and how its labels are normalised."""
        self.codes.copy_(torch.tensor([LINKS.index(link) for link in links], dtype=torch.uint8))
        self.shift.copy_(shift)
        self.scale.copy_(scale)

    def finish(self, score_BT: Tensor, seen: Seen) -> Tensor:
        """Return phenotypes of strains, beside those of their measured parts where the link compares them, [B, T]."""
        bounds = self._bounds(score_BT, seen.cell, seen.strains) or (None, None)
        return self.phenotypes(score_BT, seen.wild_type_score(score_BT), *bounds)

    def _bounds(
        self, like_BT: Tensor, cell: ResidentCell, genotypes: GenotypeBatch
    ) -> tuple[Tensor, Tensor | None] | None:
        """Return between which phenotypes measured strains put these strains; None where the link compares none.

        Returns:
            [B, T] the smallest phenotypes of the strains' measured parts, and for ``bounded`` [B, T] the largest
            phenotypes of the measured strains that they are parts of.
        """
        if self.measured is None:
            return None
        beyond = not genotypes.deletes_only or genotypes.covariates is not None
        if beyond and not len(self.measured.genes):
            unbounded_BT = torch.full_like(like_BT, torch.inf)
            return unbounded_BT, -unbounded_BT
        do = "leave activities such as `:0.3` out, or train with `model.link: saturation`"
        genotypes.refuse_activities(f"`model.link: {self.link}`, which compares lost parts", do)
        if self.training and self.link == "bounded":
            # A strain with new genes has few bounds, so that a model must not learn to rely on them.
            return torch.full_like(like_BT, WILD_TYPE), torch.zeros_like(like_BT)
        bound_BT, least_BT = from_source(PARTS, self.measured(cell, genotypes), WILD_TYPE), None
        if self.link == "bounded":
            least_BT = from_source(WHOLES, self.measured.largest(cell, genotypes), LEAST)
        return bound_BT, least_BT

    def phenotypes(
        self, score_BT: Tensor, wild_type_1T: Tensor, bound_BT: Tensor | None, least_BT: Tensor | None = None
    ) -> Tensor:
        """Return phenotypes in normalised units, [B, T], from scores and bounds in original units; see ``_bounds``."""
        anchored_BT = score_BT - wild_type_1T
        single_BT = saturation(anchored_BT)
        values = {"log": log(anchored_BT), "logistic": logistic(anchored_BT), "saturation": single_BT}
        if bound_BT is not None:
            values["minimum"] = minimum(single_BT, bound_BT)
            least_BT = torch.zeros_like(bound_BT) if least_BT is None else least_BT
            values["bounded"] = bounded(anchored_BT, least_BT, bound_BT, LEAK if self.training else 0.0)
        out_BT = score_BT
        for name, value_BT in values.items():
            chosen_T = self.codes == LINKS.index(name)
            out_BT = torch.where(chosen_T, (value_BT - self.shift) / self.scale, out_BT)
        return out_BT


def _link_of(link: str, phenotype: str, auto: str, *, fitness_like: bool) -> str:
    """Return the link of one phenotype; ``auto`` is what that link is for a fitness."""
    if link == AUTO_LINK:
        return auto if fitness_like else "identity"
    if not fitness_like and link != "identity":
        what = f"`model.link: {link}` is for phenotypes relative to the wild type, such as a fitness"
        expected = "labels that are mostly positive, are hardly ever negative, and have other values than 0 and 1"
        do = "set `model.link: identity` or `auto`"
        raise ConfigError(what, got=f"phenotype '{phenotype}'", expected=expected, do=do)
    return link
