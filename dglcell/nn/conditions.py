"""Let models see the conditions of strains, and learn from them what is left of weakened genes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from dglcell.errors import DataError
from dglcell.nn.blocks import mlp
from dglcell.perturbation.genotype import GenotypeBatch


class Conditions(nn.Module):
    r"""Turn conditions of strains into numbers: numbers are standardised, and a category is 1 among zeros.

    Args:
        seen: condition → categories, none where its values are numbers.
        chosen: the conditions that are turned; all where None.
        tables: condition → [categories, W] numbers that describe its categories, in place of a 1 among zeros; a model
            can then know a category that it was not trained on, such as a medium by what it offers.

    Attributes:
        width: how many numbers W a strain has.
        shift, scale: [C] mean and standard deviation of each condition over the training part; 0 and 1 of categories.

    Shapes:
        values of all conditions [B, C], with categories by their number → [B, W].
    """

    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        seen: Mapping[str, Sequence[str]],
        chosen: Sequence[str] | None = None,
        tables: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.sizes = [len(categories) for categories in seen.values()]
        self.places = [i for i, name in enumerate(seen) if chosen is None or name in chosen]
        self.tables = [f"table_{i}" if name in (tables or {}) else "" for i, name in enumerate(seen)]
        for name, table in zip(self.tables, map((tables or {}).get, seen), strict=True):
            if table is not None:
                self.register_buffer(name, table, persistent=False)
        widths = [len(getattr(self, self.tables[i])[0]) if self.tables[i] else self.sizes[i] or 1 for i in self.places]
        self.width = sum(widths)
        self.register_buffer("shift", torch.zeros(len(seen)))
        self.register_buffer("scale", torch.ones(len(seen)))

    def fit(self, values_SC: Tensor) -> None:
        """Take mean and standard deviation of numbers from those of the training strains; a constant keeps scale 1."""
        numbers = torch.tensor([not size for size in self.sizes])
        spread = values_SC.double().std(0, correction=0)
        self.shift = torch.where(numbers, values_SC.double().mean(0), 0.0).to(self.shift)
        self.scale = torch.where(numbers & (spread > 0), spread, 1.0).to(self.scale)

    def forward(self, values_BC: Tensor) -> Tensor:
        """Return the numbers of each strain, [B, W]."""
        found = []
        for i in self.places:
            column_B = values_BC[:, i]
            if self.tables[i]:
                found.append(getattr(self, self.tables[i])[column_B.long()].to(self.shift))
            elif self.sizes[i]:
                # A category that the model does not know is zero everywhere.
                found.append((column_B[:, None] == torch.arange(self.sizes[i], device=column_B.device)).to(self.shift))
            else:
                found.append(((column_B.to(self.shift) - self.shift[i]) / self.scale[i])[:, None])
        return torch.cat(found, dim=1)


HALF_EFFECTS = (0.03, 0.1, 0.3, 1.0)
"""Heads see how much of a gene is left as s / (s + κ), for each of these κ: all are 0 for a deletion."""


class ConditionedReadout(nn.Module):
    r"""Let heads see the conditions of strains, and how much is left of each changed gene.

    Numbers f of a gene in a strain, which are its conditions c and :math:`s / (s + \kappa)`, change its vector x to

    .. math:: x + A f + (V x) \odot (B f),

    so that every gene has a dose–response curve and a response to each condition of its own. A Linear layer of c is
    added to the vector of the strain, which is what joining c to it does before a Linear layer (as ``x_d`` of Chemprop
    does: Heid et al. 2024, *J. Chem. Inf. Model.* 64:9). A model without a head on the whole strain gets a score of the
    conditions alone, because the wild type has no changed gene. All starts at zero, and a deletion is what it was.

    Args:
        conditions: turns conditions into numbers; None where the model sees none.
        curves: whether heads see how much is left of genes.
        width: H of genes' vectors; 0 where no head sees genes.
        strain_width: width of the strain's vector; 0 where no head sees it.
        outputs: T.
        hidden: width inside the score of the conditions alone.
        activation: activation inside it.
    """

    kappa: Tensor

    def __init__(
        self,
        conditions: Conditions | None,
        *,
        curves: bool,
        width: int,
        strain_width: int,
        outputs: int,
        hidden: int,
        activation: str,
    ) -> None:
        super().__init__()
        self.conditions, self.curves = conditions, curves
        seen = 0 if conditions is None else conditions.width
        of_gene = seen + len(HALF_EFFECTS) * curves
        self.register_buffer("kappa", torch.tensor(HALF_EFFECTS), persistent=False)
        self.shift = nn.Linear(of_gene, width, bias=False) if width else None
        self.factor = nn.Linear(of_gene, width, bias=False) if width else None
        self.vector = nn.Linear(width, width, bias=False) if width else None
        self.to_strain = nn.Linear(seen, strain_width, bias=False) if seen and strain_width else None
        self.alone = mlp([seen, hidden, outputs], activation, 0.0) if seen and not strain_width else None

    def start_at_zero(self) -> None:
        """Set the weights so that conditions and strengths change nothing yet."""
        for layer in (self.shift, self.factor, self.to_strain, None if self.alone is None else self.alone[-1]):
            _set_to_zero(layer)

    def genes(self, x_BKH: Tensor, removed_BK: Tensor, genotypes: GenotypeBatch) -> Tensor:
        """Return the vectors of changed genes, [B, K, H], as they are in these strains.

        Args:
            x_BKH: their vectors in the wild type.
            removed_BK: how much of each is removed; see ``GenotypeBatch.padded``.
            genotypes: the strains.
        """
        if self.shift is None or self.factor is None or self.vector is None:
            return x_BKH
        numbers = []
        if self.conditions is not None:
            numbers.append(self._seen(genotypes).unsqueeze(1).expand(-1, x_BKH.shape[1], -1))
        if self.curves:
            left_BK1 = (1 - removed_BK.to(x_BKH.dtype)).unsqueeze(2)
            numbers.append(left_BK1 / (left_BK1 + self.kappa.to(x_BKH.dtype)))
        f_BKF = torch.cat(numbers, dim=2)
        moved: Tensor = x_BKH + self.shift(f_BKF) + self.vector(x_BKH) * self.factor(f_BKF)
        return moved

    def strain(self, z_BD: Tensor, genotypes: GenotypeBatch) -> Tensor:
        """Return the vectors of strains, [B, D], moved by the conditions."""
        return z_BD if self.to_strain is None else z_BD + self.to_strain(self._seen(genotypes))

    def score(self, score_BT: Tensor, genotypes: GenotypeBatch) -> Tensor:
        """Return the scores, [B, T], with those of the conditions alone added where no head sees the whole strain."""
        return score_BT if self.alone is None else score_BT + self.alone(self._seen(genotypes))

    def _seen(self, genotypes: GenotypeBatch) -> Tensor:
        if genotypes.conditions is None:
            raise DataError(
                "the model sees conditions, and these strains have none",
                got="strains without conditions",
                expected="strains after `Strains.with_conditions(config.model.conditions)`",
            )
        assert self.conditions is not None
        numbers: Tensor = self.conditions(genotypes.conditions)
        return numbers


class LearnedStrengths(nn.Module):
    r"""Learn what is left of a strain's genes from some of its conditions, such as an allele or features of a guide.

    .. math:: s = \sigma\big(\operatorname{logit}(s_0) + f(c)\big)

    with the network f, which starts at zero, and the strength :math:`s_0` that the table gives, or else the prior. All
    strains with the same allele have the same strength, and a guide's strength follows from its features, so that no
    measurement has a number of its own. What is deleted stays deleted, and what is not weakened (1 or more) stays so.

    Args:
        conditions: turns these conditions into numbers.
        hidden: width inside f; with 0 it is one Linear layer, which has a number for each allele.
        prior: s₀ of genes whose strength the table does not give.
        activation: activation inside f.
        tabled: whether the table gives strengths. Strains without any then delete all of their genes.
    """

    def __init__(
        self, conditions: Conditions, *, hidden: int, prior: float, activation: str, tabled: bool = False
    ) -> None:
        super().__init__()
        self.conditions, self.prior, self.tabled = conditions, prior, tabled
        self.network = mlp([conditions.width, *([hidden] if hidden else []), 1], activation, 0.0)

    def start_at_zero(self) -> None:
        """Set the weights so that strengths are those of the table, or the prior."""
        _set_to_zero(self.network[-1])

    def forward(self, genotypes: GenotypeBatch) -> GenotypeBatch:
        """Return the strains with the strengths that are learned."""
        if genotypes.conditions is None:
            raise DataError(
                "strengths are learned from conditions, and these strains have none",
                expected="strains after `Strains.with_conditions(config.model.conditions)`",
            )
        change_B = self.network(self.conditions(genotypes.conditions)).squeeze(1)
        change_P = change_B[genotypes.strains]
        given_P = genotypes.strengths
        if given_P is None and self.tabled:
            return genotypes
        if given_P is None:
            return replace(genotypes, strengths=torch.sigmoid(change_P + _logit(self.prior)))
        weakened_P = (given_P > 0) & (given_P < 1)
        inside_P = torch.where(weakened_P, given_P, 0.5).to(change_P)
        return replace(
            genotypes, strengths=torch.where(weakened_P, torch.sigmoid(change_P + inside_P.logit()), given_P)
        )


def _set_to_zero(layer: nn.Module | None) -> None:
    for parameter in () if layer is None else layer.parameters():
        nn.init.zeros_(parameter)


def _logit(share: float) -> float:
    return float(torch.tensor(share, dtype=torch.float64).logit())
