"""Let models see covariates, learn from them what is left of genes, and let media change strains' graphs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from dglcell.data.columns import MEDIUM
from dglcell.errors import ConfigError, DataError, did_you_mean, listing
from dglcell.graph.resident import ResidentCell
from dglcell.models.config import CovariatesConfig
from dglcell.models.terms.term import Seen, Surroundings, Term, Training
from dglcell.nn.blocks import mlp
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.targets import Targets


class CovariateNumbers(nn.Module):
    """Turn covariates of strains, [B, C] with categories by their number, into numbers, [B, W].

    Numbers are standardised by ``shift`` and ``scale``, and a category is 1 among zeros.

    Args:
        seen: covariate → categories, none where its values are numbers.
        chosen: the covariates that are turned; all where None.
        tables: covariate → [categories, W] numbers that describe its categories, in place of a 1 among zeros; a model
            can then know a category that it was not trained on, such as a medium by what it offers.
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

    def of(self, genotypes: GenotypeBatch) -> Tensor:
        """Return the numbers of each strain, [B, W]; a ``DataError`` where the strains have no covariates."""
        if genotypes.covariates is None:
            expected = "strains after `Strains.with_covariates(config.model.covariates)`"
            raise DataError("the model sees covariates, and these strains have none", expected=expected)
        numbers_BW: Tensor = self(genotypes.covariates)
        return numbers_BW

    def forward(self, values_BC: Tensor) -> Tensor:
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


PENALTIES = tuple(10.0**power for power in range(-2, 6))
"""``linear_covariates`` are fitted with one of these."""


class Covariates(Term):
    r"""Let heads see the covariates of strains, and how much is left of each changed gene.

    Numbers f of a gene in a strain, which are its covariates c and :math:`s / (s + \kappa)`, change its vector x to

    .. math:: x + A f + (V x) \odot (B f),

    so that every gene has a dose–response curve and a response to each covariate of its own. A Linear layer of c is
    added to the vector of the strain, which is what joining c to it does before a Linear layer (as ``x_d`` of Chemprop
    does: Heid et al. 2024, *J. Chem. Inf. Model.* 64:9). A model without a vector of the whole strain gets a score of
    the covariates alone, because the wild type has no changed gene. All starts at zero, and a deletion is what it was.

    With ``linear_covariates`` a linear function of c is added to the score, as in a wide and deep model (Cheng et al.
    2016, *DLRS*). A ridge gives its first weights, but for log-odds, and it is trained with the network from there on.
    So a covariate that predicts by itself, such as the growth of flux balance analysis, counts from the start.

    In models with a graph for each strain, a growth medium weakens reactions.
    """

    Config = CovariatesConfig
    kappa: Tensor
    media: Tensor | None

    def __init__(self, config: CovariatesConfig, surroundings: Surroundings) -> None:
        super().__init__(config, surroundings)
        self.seen, self.cell, self.own_graphs = config.covariates or {}, surroundings.cell, surroundings.own_graphs
        learned_from = config.covariates_of_activity()
        shown = [name for name in self.seen if name not in learned_from]
        media = media_table(self.cell, self.seen[MEDIUM]) if MEDIUM in self.seen and self.cell.media else None
        self.register_buffer("media", media, persistent=False)
        tables = None if media is None else {MEDIUM: media}
        self.covariates = CovariateNumbers(self.seen, shown, tables) if shown else None
        self.curves = bool(config.activity_curves or config.activity_from)
        self.register_buffer("kappa", torch.tensor(HALF_EFFECTS), persistent=False)
        width = 0 if self.covariates is None else self.covariates.width
        of_gene = width + len(HALF_EFFECTS) * self.curves
        strains = {name: term.width for name, term in surroundings.before.items() if term.width}
        hidden, outputs = surroundings.hidden, surroundings.outputs
        moves = of_gene > 0 and any(term.sees_genes for term in surroundings.before.values())
        self.shift = nn.Linear(of_gene, hidden, bias=False) if moves else None
        self.factor = nn.Linear(of_gene, hidden, bias=False) if moves else None
        self.vector = nn.Linear(hidden, hidden, bias=False) if moves else None
        self.to_strain = nn.ModuleDict({n: nn.Linear(width, D, bias=False) for n, D in strains.items() if width})
        alone = width > 0 and not strains
        self.alone = mlp([width, hidden, outputs], surroundings.activation, 0.0) if alone else None
        self.linear = nn.Linear(width, outputs) if width and config.linear_covariates else None

    def start(self) -> None:
        last = None if self.alone is None else self.alone[-1]
        set_to_zero(self.shift, self.factor, last, self.linear, *self.to_strain.values())

    def fit(self, train: Training, cell: ResidentCell) -> None:
        values_SC = train.strains.perturbations.covariates
        if self.covariates is None or values_SC is None:
            return
        self.covariates.fit(values_SC)
        if self.linear is not None and train.normaliser.kind != "logistic":
            fit_ridge(self.linear, self.covariates(values_SC), train.normaliser.normalise(train.strains.labels))

    def strains(self, genotypes: GenotypeBatch) -> GenotypeBatch:
        values_BC = genotypes.covariates
        if values_BC is None or self.media is None or not self.own_graphs:
            return genotypes
        return in_media(self.cell, genotypes, self.media[values_BC[:, list(self.seen).index(MEDIUM)].long()])

    def see(self, seen: Seen) -> Seen:
        numbers_BW = None if self.covariates is None else self.covariates.of(seen.strains)
        if self.shift is not None and self.factor is not None and self.vector is not None:
            numbers, x_BKH = [], seen.x_BKH
            if numbers_BW is not None:
                numbers.append(numbers_BW.unsqueeze(1).expand(-1, x_BKH.shape[1], -1))
            if self.curves:
                left_BK1 = (1 - seen.strains.padded()[1].to(x_BKH.dtype)).unsqueeze(2)
                numbers.append(left_BK1 / (left_BK1 + self.kappa.to(x_BKH.dtype)))
            f_BKF = torch.cat(numbers, dim=2)
            moved_BKH: Tensor = x_BKH + self.shift(f_BKF) + self.vector(x_BKH) * self.factor(f_BKF)
            seen = replace(seen, x_BKH=moved_BKH)
        moved = {name: seen.vectors[name] + layer(numbers_BW) for name, layer in self.to_strain.items()}
        return replace(seen, vectors={**seen.vectors, **moved})

    def finish(self, score_BT: Tensor, seen: Seen) -> Tensor:
        for layer in (self.alone, self.linear):
            if layer is not None and self.covariates is not None:
                score_BT = score_BT + layer(self.covariates.of(seen.strains))
        return score_BT


class Activities(Term):
    r"""Learn what is left of a strain's genes from some of its covariates, such as an allele or features of a guide.

    .. math:: s = \sigma\big(\operatorname{logit}(s_0) + f(c)\big)

    with the network f, which starts at zero, and the activity :math:`s_0` that the table gives, or else the prior. All
    strains with the same allele have the same activity, and a guide's activity follows from its features, so that no
    measurement has a number of its own. What is deleted stays deleted, and what is not weakened (1 or more) stays so.
    Where the table gives activities (``activity_curves``), strains without any delete all of their genes.
    """

    Config = CovariatesConfig
    config: CovariatesConfig
    learns_activities = True

    def __init__(self, config: CovariatesConfig, surroundings: Surroundings) -> None:
        super().__init__(config, surroundings)
        self.covariates = CovariateNumbers(config.covariates or {}, config.covariates_of_activity())
        hidden = [config.activity_hidden] if config.activity_hidden else []
        self.network = mlp([self.covariates.width, *hidden, 1], surroundings.activation, 0.0)

    def start(self) -> None:
        set_to_zero(self.network[-1])

    def fit(self, train: Training, cell: ResidentCell) -> None:
        if (values_SC := train.strains.perturbations.covariates) is not None:
            self.covariates.fit(values_SC)

    def strains(self, genotypes: GenotypeBatch) -> GenotypeBatch:
        given_P = genotypes.activities
        if given_P is None and self.config.activity_curves:
            return genotypes
        change_P = self.network(self.covariates.of(genotypes)).squeeze(1)[genotypes.strains]
        if given_P is None:
            prior = self.config.activity_prior
            return replace(genotypes, activities=torch.sigmoid(change_P + math.log(prior / (1 - prior))))
        weakened_P = (given_P > 0) & (given_P < 1)
        inside_P = torch.where(weakened_P, given_P, 0.5).to(change_P)
        left_P = torch.where(weakened_P, torch.sigmoid(change_P + inside_P.logit()), given_P)
        return replace(genotypes, activities=left_P)


def fit_ridge(linear: nn.Linear, x_SW: Tensor, y_ST: Tensor) -> None:
    """Set a layer to the ridge regression of labels, NaN where missing; each penalty is chosen by leaving one out."""
    from sklearn.linear_model import RidgeCV

    for t, y_S in enumerate(y_ST.unbind(1)):
        some_S = ~y_S.isnan()
        ridge = RidgeCV(PENALTIES).fit(x_SW[some_S].double().numpy(), y_S[some_S].double().numpy())
        with torch.no_grad():
            linear.weight[t].copy_(torch.from_numpy(ridge.coef_))
            linear.bias[t] = float(ridge.intercept_)


def in_media(cell: ResidentCell, genotypes: GenotypeBatch, activities_BK: Tensor) -> GenotypeBatch:
    """Return strains with what their media leave of the reactions that differ between media."""
    B, K = activities_BK.shape
    offsets = torch.arange(B + 1, device=activities_BK.device) * K
    return replace(genotypes, reactions=Targets(cell.media_nodes.repeat(B), offsets, K, activities_BK.reshape(-1)))


def media_table(cell: ResidentCell, names: Sequence[str]) -> Tensor:
    """Return the activities of the nodes that differ between media, [M, K], in the order of ``names``."""
    known = cell.media
    for name in names:
        if name not in known:
            what, do = f"the cell graph does not know the medium '{name}' of the strains", "add it to `cell.media`"
            raise ConfigError(what, expected=f"among {listing(known)}", do=did_you_mean(name, known, do))
    return cell.media_activities[[known.index(name) for name in names]]


def set_to_zero(*layers: nn.Module | None) -> None:
    """Set weights to zero, so that they change nothing yet."""
    for layer in layers:
        for parameter in () if layer is None else layer.parameters():
            nn.init.zeros_(parameter)
