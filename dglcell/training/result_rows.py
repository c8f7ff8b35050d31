"""Compute the rows of a table of results: those of the model, and of null models fitted on the same split."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dglcell.baselines.fit import Problem, fit_null_models, in_words, left_out_null_models
from dglcell.data.columns import CONDITION
from dglcell.data.strains import Strains
from dglcell.errors import count
from dglcell.metrics import ResultRow, row_of, rows_of
from dglcell.training.null_problems import null_problems, strains_by_part
from dglcell.training.prepare import Prepared
from dglcell.uncertainty.paired import ahead

log = logging.getLogger("dglcell")


def model_rows(model: str, prepared: Prepared, predictions: Mapping[str, NDArray[np.float32]]) -> list[ResultRow]:
    """Return the metrics of the model, a row per phenotype and part.

    Args:
        predictions: part → [S, T] in original units.
    """
    dataset = prepared.dataset
    strains = {part: dataset.take(prepared.parts[part]) for part in predictions}
    measured = {part: found.labels.numpy() for part, found in strains.items()}
    groups = {part: same_conditions(found) for part, found in strains.items()}
    return [
        row
        for t, (name, kind) in enumerate(zip(dataset.phenotypes, dataset.kinds, strict=True))
        for row in rows_of(model, name, kind, _column(predictions, t), _column(measured, t), groups=groups)
    ]


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


@dataclass(frozen=True)
class NullResults:
    """This holds the metrics of the null models.

    Attributes:
        rows: rows of the table.
        left_out: phenotype → null model → why it does not apply.
    """

    rows: list[ResultRow] = field(default_factory=list)
    left_out: dict[str, dict[str, str]] = field(default_factory=dict)


def null_results(prepared: Prepared, of_model: NDArray[np.float32] | None = None) -> NullResults:
    """Return the metrics of null models, fitted on the training part, for every phenotype and evaluated part.

    Args:
        of_model: [n, T] predictions of the model for the test part, whose lead over each null model is among the
            metrics then (`dglcell.uncertainty.paired.ahead`).
    """
    dataset, found = prepared.dataset, NullResults()
    if not prepared.evaluated:
        return found
    strains = strains_by_part(prepared)
    of_phenotypes = zip(dataset.phenotypes, dataset.kinds, null_problems(prepared), strict=True)
    for t, (phenotype, kind, problem) in enumerate(of_phenotypes):
        labels = {part: found.phenotypes[phenotype] for part, found in strains.items()}
        groups = {part: same_conditions(found) for part, found in strains.items()}
        rows, tested = [], {}
        found.left_out[phenotype] = left_out_null_models(problem)
        _say_fitted(phenotype, problem)
        for name, model in fit_null_models(problem).items():
            log.info("null model of %s: %s", phenotype, in_words(name, model))
            predicted = {part: model.predict(strains[part]) for part in prepared.evaluated}
            rows += rows_of(name, phenotype, kind, predicted, labels, is_null=True, groups=groups)
            if "test" in predicted:
                tested[name] = predicted["test"]
        leads = {} if of_model is None else ahead(kind, of_model[:, t], tested, labels["test"], strains["test"])
        found.rows.extend(row.with_metrics(leads.get(row.model, {})) if row.part == "test" else row for row in rows)
    return found


def _say_fitted(phenotype: str, problem: Problem) -> None:
    log.info("fitting null models of %s to %s", phenotype, count(int(np.isfinite(problem.y_train).sum()), "strain"))


def null_rows_on(
    prepared: Prepared, strains: Strains, measured: Mapping[str, NDArray[np.floating]], part: str
) -> list[ResultRow]:
    """Return the metrics of the null models on strains outside the data set; none where they cannot be fitted.

    Args:
        strains: strains to predict; their genes are those of the cell graph.
        measured: phenotype of the data set → [S] labels.
    """
    if not prepared.evaluated:
        return []
    rows = []
    for phenotype, problem in zip(prepared.dataset.phenotypes, null_problems(prepared, strains), strict=True):
        if phenotype in measured:
            _say_fitted(phenotype, problem)
            for name, model in fit_null_models(problem).items():
                values = model.predict(strains)
                rows.append(row_of(name, phenotype, part, values, measured[phenotype], is_null=True))
    return rows


def _column(table: Mapping[str, NDArray[np.float32]], t: int) -> dict[str, NDArray[np.float32]]:
    """Return part → [S] values of the t-th phenotype."""
    return {part: values_ST[:, t] for part, values_ST in table.items()}
