"""Compute the rows of a table of results: the network, the baselines of the run, and an ensemble of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dglcell.data.columns import CONDITION
from dglcell.data.strains import Strains
from dglcell.metrics import HEADLINE, ResultRow, best_row, rows_of
from dglcell.training.baselines import Baselines, strains_by_part
from dglcell.training.predicting import Choice, choose, ensemble_name, ensemble_weight, mixed
from dglcell.training.prepare import Prepared
from dglcell.uncertainty.paired import ahead

Values = NDArray[np.floating]

NO_BASELINE = "no baseline has a score on a validation part"


@dataclass(frozen=True)
class Scored:
    """Hold what was found of the models of a run.

    Attributes:
        rows: rows of the table, for each phenotype those of the network, the baselines and the ensemble.
        choices: phenotype → what predicts it; nothing where there was no network.
        chosen: part → [S, T] predictions of what predicts, in original units.
    """

    rows: list[ResultRow] = field(default_factory=list)
    choices: dict[str, Choice] = field(default_factory=dict)
    chosen: dict[str, NDArray[np.float32]] = field(default_factory=dict)


def same_conditions(strains: Strains) -> NDArray[np.int64]:
    """Return the number of a group for each strain, [S]: strains of a group have the same medium and other classes."""
    columns = [
        np.asarray(values)
        for column, values in strains.columns.items()
        if column.kind == CONDITION and column.categories
    ]
    if not columns:
        return np.zeros(len(strains), np.int64)
    return np.unique(np.stack(columns, 1), axis=0, return_inverse=True)[1].reshape(-1)


def score(
    prepared: Prepared,
    baselines: Baselines,
    network: str = "",
    predictions: Mapping[str, NDArray[np.float32]] | None = None,
) -> Scored:
    """Return the rows of every phenotype and evaluated part, and what predicts.

    Args:
        network: name of the network.
        predictions: part → [S, T] predictions of the network in original units; None where baselines stand alone. Its
            lead over each baseline on the test part is among their metrics (`dglcell.uncertainty.paired.ahead`).
    """
    dataset, found = prepared.dataset, Scored()
    strains = {part: of for part, of in strains_by_part(prepared).items() if part in prepared.evaluated}
    few = prepared.too_few_to_choose()
    found.chosen.update({part: values_ST.copy() for part, values_ST in (predictions or {}).items()})
    for t, (phenotype, kind) in enumerate(zip(dataset.phenotypes, dataset.kinds, strict=True)):
        one = _Phenotype(phenotype, kind, strains)
        of_baselines = {
            name: {part: model.predict(of) for part, of in strains.items()}
            for name, model in baselines.models.get(phenotype, {}).items()
        }
        if predictions is None:
            found.rows.extend(row for name, of in of_baselines.items() for row in one.rows(name, of, is_null=True))
            continue
        own = {part: values_ST[:, t] for part, values_ST in predictions.items()}
        rows, choice, mixture = one.compared(network, own, of_baselines, few)
        found.rows.extend(rows)
        found.choices[phenotype] = choice
        for part, values_S in mixture.items():
            found.chosen[part][:, t] = values_S
    return found


@dataclass(frozen=True)
class _Phenotype:
    """Hold a phenotype, the kind of its labels, and the strains of each evaluated part."""

    name: str
    kind: str
    strains: Mapping[str, Strains]

    def rows(self, model: str, predicted: Mapping[str, Values], *, is_null: bool = False) -> list[ResultRow]:
        labels = {part: of.phenotypes[self.name] for part, of in self.strains.items()}
        groups = {part: same_conditions(of) for part, of in self.strains.items()}
        return rows_of(model, self.name, self.kind, predicted, labels, is_null=is_null, groups=groups)

    def compared(
        self, network: str, own: Mapping[str, Values], baselines: Mapping[str, Mapping[str, Values]], few: str | None
    ) -> tuple[list[ResultRow], Choice, dict[str, Values]]:
        """Return the rows of the network, of an ensemble and of baselines, the choice, and what it predicts."""
        of_network = self.rows(network, own)
        of_baselines = [row for name, of in baselines.items() for row in self.rows(name, of, is_null=True)]
        if "test" in own:
            test, others = self.strains["test"], {name: of["test"] for name, of in baselines.items()}
            leads = ahead(self.kind, own["test"], others, test.phenotypes[self.name], test)
            of_baselines = [
                row.with_metrics(leads.get(row.model, {})) if row.part == "test" else row for row in of_baselines
            ]
        best = best_row(_on_validation(of_baselines), HEADLINE[self.kind])
        weight, of_ensemble = None, list[ResultRow]()
        if best is not None and few is None:
            of_best = baselines[best.model]
            validation = self.strains["validation"].phenotypes[self.name]
            weight = ensemble_weight(own["validation"], of_best["validation"], validation)
            both = {part: mixed(own[part], of_best[part], weight) for part in own}
            of_ensemble = self.rows(ensemble_name(best.model, weight), both)
        unscored = NO_BASELINE if baselines else "no baselines were fitted"
        note = unscored if best is None else f"no ensemble is made, because {few}" if few else ""
        first, third = (next(iter(_on_validation(rows)), None) for rows in (of_network, of_ensemble))
        choice = choose(first, best, third, weight, note)
        share = choice.weight_of(choice.by) or 0.0
        chosen = dict(own)
        if share:
            chosen = {part: mixed(own[part], baselines[choice.baseline or ""][part], share) for part in own}
        return [*of_network, *of_ensemble, *of_baselines], choice, chosen


def _on_validation(rows: list[ResultRow]) -> list[ResultRow]:
    return [row for row in rows if row.part == "validation"]
