"""Read the covariates of strains to predict, such as their growth medium, where a model sees any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dglcell.data.changes import number_of
from dglcell.data.columns import COVARIATE, Column
from dglcell.data.sources import Computed, cache_folder
from dglcell.data.sources.guides import SITE, GuideConfig
from dglcell.data.sources.source import Work
from dglcell.data.strains import Strains
from dglcell.data.table import Issue, Rows, in_one_line
from dglcell.errors import DataError, GenotypeError, closest, did_you_mean, listing
from dglcell.graph.schema import EDGES, edge_text
from dglcell.training.checkpoint import Trained

Seen = Mapping[str, Sequence[str]]
"""This maps each covariate that a model sees to its categories; they are none where values are numbers."""

Completion = Callable[[Strains], Strains]
"""This adds to strains the columns that simulators compute, with the covariates as a model sees them."""

NEW, NEW_NUMBER = None, -1
"""This is the value of a covariate with categories where none of them fits: a site that the training did not have."""

ANOTHER = "a run knows only what its strains had; to predict another value, train a run on strains that have it"
"""Messages say so of a covariate with categories."""


def seen_by(trained: Trained) -> dict[str, Sequence[str]]:
    """Return the covariates that a model sees, in its order."""
    seen = trained.config.model.covariates or {}
    # The model looks up edges that it was not trained on as well, so that its list of them may grow.
    return {name: categories if name == EDGES else tuple(categories) for name, categories in seen.items()}


def asked_of(trained: Trained) -> dict[str, Sequence[str]]:
    """Return the covariates that strains to predict must say: those that a model sees and no simulator computes."""
    data = trained.config.data
    computed = {*data.computed, *([] if data.fba is None else [data.fba.name])}
    return {name: categories for name, categories in seen_by(trained).items() if name not in computed}


def completion_of(trained: Trained) -> Completion | None:
    """Return what adds the columns that simulators compute; None where a model has none.

    Raises:
        ConfigError: a class of the user's own cannot be imported.
    """
    config = trained.config
    computed = Computed.of(config.data.fba, config.data.computed, config.cell)
    if not computed.simulators:
        return None
    work, seen = Work(config.paths.raw, cache_folder(config.paths.data)), seen_by(trained)

    def complete(strains: Strains) -> Strains:
        there = {column: values for column, values in strains.columns.items() if column.name not in computed.simulators}
        return computed.add(strains.with_(columns=there), work).with_covariates(seen)

    return complete


def added_column(covariate: str) -> str:
    """Return the name of the column with a covariate that is no column of the user's own table."""
    return f"covariate_{covariate}"


def values_of(seen: Seen, covariate: str, first: Iterable[str] = ()) -> str:
    """Return in words which values a covariate may have, some of them ``first``."""
    categories = dict.fromkeys([*first, *seen[covariate]])
    return f"one of {listing(categories)}" if categories else "a finite number"


def check_covariates(seen: Seen, given: Iterable[str]) -> None:
    """Refuse covariates that a model does not see."""
    for name in given:
        if name not in seen:
            expected = listing(f"{known} ({values_of(seen, known)})" for known in seen) or "none: the model sees none"
            what = f"the model does not see a covariate '{name}'"
            raise GenotypeError(what, expected=expected, do=did_you_mean(name, seen))


def find_covariates(seen: Seen, header: Sequence[str], trained_on: Mapping[str, str], where: str) -> list[str]:
    """Return the columns of a table with the covariates that a model sees, in its order.

    Args:
        trained_on: covariate → its column in the table that the model was trained on.
        where: the place of the table, for the message.

    Raises:
        GenotypeError: a covariate has no column, or several.
    """
    found = []
    otherwise = (
        "add such a column, or give one value for all: `--covariate NAME=VALUE`, in Python `covariates={NAME: VALUE}`"
    )
    for name in seen:
        known = list(dict.fromkeys([trained_on.get(name, name), name, added_column(name)]))
        there = [column for column in known if column in header]
        if len(there) != 1:
            are = "several columns are" if there else "no column is"
            raise GenotypeError(
                f"{where}: {are} the covariate '{name}', which the model sees",
                got=listing(there or header),
                expected=f"a column {' or '.join(known)} with {values_of(seen, name)} in each row",
                do="keep one of them" if there else did_you_mean(name, header, otherwise),
            )
        found += there
    return found


def read_covariates(
    seen: Seen, rows: Rows, columns: Sequence[str], guides: Mapping[str, Sequence[object]]
) -> tuple[list[NDArray[np.float32]], list[Issue]]:
    """Return the covariates of the rows of a table as `covariate_number` does, and what is wrong with them.

    Args:
        columns: the columns of the covariates, in their order; some may be those of ``guides``.
    """
    import pandas as pd

    numbers, issues = [], list[Issue]()
    for name, column in zip(seen, columns, strict=True):
        codes, distinct = pd.factorize(np.array(guides.get(column, rows.frame.get(column)), dtype=object))
        values, wrong = [], dict[str, list[int]]()
        for code, value in enumerate(distinct):
            try:
                values.append(covariate_number(seen, name, value))
            except GenotypeError as error:
                values.append(np.nan)
                wrong[in_one_line(error)] = np.flatnonzero(codes == code).tolist()
        issues += rows.issues(wrong)
        numbers.append(np.array([*values, NEW_NUMBER], np.float32)[codes])  # the last one is of missing values
    return numbers, issues


def guide_columns(seen: Seen, guides: GuideConfig | None, rows: Rows, where: str) -> dict[str, Sequence[object]]:
    """Return the covariates of the guides of a table, as far as the model sees them.

    There are none where the training or the table has no guides, or the table has the covariates themselves.

    Raises:
        GenotypeError: sequences of guides are no sequences.
    """
    if guides is None or SITE in rows.frame or not {*guides.columns} <= {*rows.frame}:
        return {}
    known = {*seen.get(SITE, ())}
    try:
        found = guides.covariates(rows.frame[guides.columns].to_numpy().tolist(), where, seen.get(SITE, ()))
    except DataError as error:
        raise GenotypeError(str(error)) from error
    columns: dict[str, Sequence[object]] = {name: values.tolist() for name, values in found.items() if name in seen}
    return columns | ({SITE: [one if one in known else NEW for one in columns[SITE]]} if SITE in columns else {})


def covariate_number(seen: Seen, covariate: str, value: object, otherwise: str | None = None) -> float:
    """Return a value of a covariate as a model sees it: the number that it says, or that of its category, −1 if new.

    Args:
        otherwise: what to do where no category is close, for the message.

    Raises:
        GenotypeError: it is missing, no finite number, or no category that the model knows.
    """
    text, categories = str(value).strip(), seen[covariate]
    if value is NEW:
        return NEW_NUMBER
    if covariate == EDGES and isinstance(categories, list):
        text = edge_text(text)
        if text not in categories:
            categories.append(text)
    if categories and text in categories:
        return categories.index(text)
    try:
        number = np.nan if categories else number_of(text)
    except ValueError:
        number = np.nan
    if abs(number) <= float(np.finfo(np.float32).max):
        return number
    close = closest(text, categories)
    raise GenotypeError(
        f"covariate '{covariate}' has a value that the model cannot see",
        got=f"'{text}'",
        expected=values_of(seen, covariate, close),
        do=did_you_mean(text, close, otherwise if categories else None),
    )


def with_covariates(strains: Strains, seen: Seen, numbers_SC: ArrayLike) -> Strains:
    """Return strains with what `covariate_number` returns of each, [S, C], for the C covariates that a model sees."""
    numbers = np.asarray(numbers_SC, np.float32).reshape(len(strains), len(seen))
    columns = (Column(COVARIATE, name, tuple(categories)) for name, categories in seen.items())
    found: dict[Column, NDArray[np.float32]] = dict(zip(columns, numbers.T.copy(), strict=True))
    return strains.with_(columns={**strains.columns, **found}).with_covariates(seen)


def wild_type_in(seen: Seen, given: Mapping[str, object], do: str) -> Strains:
    """Return one strain that changes no gene, with the covariates of all strains of a design.

    Args:
        given: covariate → value.
        do: how covariates are given, for the message.

    Raises:
        GenotypeError: a covariate is missing, or not seen, or has a wrong value.
    """
    check_covariates(seen, given)
    lacking = [name for name in seen if name not in given]
    if lacking:
        raise GenotypeError(
            f"strains need the covariate '{lacking[0]}', which the model sees",
            got=listing(f"{name}={value}" for name, value in given.items()) or "no covariate",
            expected=", ".join(f"{name}: {values_of(seen, name)}" for name in lacking),
            do=do,
        )
    numbers = [covariate_number(seen, name, given[name], ANOTHER) for name in seen]
    return with_covariates(Strains.from_indices((), [()]), seen, [numbers])
