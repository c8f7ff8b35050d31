"""Read the covariates of strains to predict, such as their growth medium, where a model sees any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dglcell.data.changes import number_of
from dglcell.data.columns import COVARIATE, Column
from dglcell.data.sources import Computed, cache_folder
from dglcell.data.sources.config import CsvConfig, GuideConfig
from dglcell.data.sources.csv_table import SITE, guide_covariates
from dglcell.data.sources.source import Work
from dglcell.data.strains import Strains
from dglcell.data.table import Issue, Rows, in_one_line
from dglcell.errors import DataError, GenotypeError, closest, did_you_mean, listing
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
    return {name: tuple(categories) for name, categories in (trained.config.model.covariates or {}).items()}


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


def columns_for(covariate: str, csv: CsvConfig) -> list[str]:
    """Return the columns that may hold a covariate, named as in training, by its own name, or as it was given."""
    return [*dict.fromkeys([csv.covariates.get(covariate, covariate), covariate, added_column(covariate)])]


def values_of(seen: Seen, covariate: str, first: Iterable[str] = ()) -> str:
    """Return in words which values a covariate may have, some of them ``first``."""
    categories = dict.fromkeys([*first, *seen[covariate]])
    return f"one of {listing(categories)}" if categories else "a finite number"


def read_covariates(seen: Seen, rows: Rows, csv: CsvConfig) -> tuple[NDArray[np.float32], list[Issue]]:
    """Return what `covariate_number` returns of the C covariates of all rows, [S, C], and what is wrong with them.

    Args:
        csv: the table that the model was trained on.

    Raises:
        GenotypeError: a covariate has no column, or several; or sequences of guides are no sequences.
    """
    import pandas as pd

    guides = _of_guides(seen, csv.guides, rows)
    header = [*rows.frame.columns, *guides]
    numbers, issues = np.zeros((len(rows), len(seen)), np.float32), list[Issue]()
    do = "add such a column, or give one value for all: `--covariate NAME=VALUE`, in Python `covariates={NAME: VALUE}`"
    for place, name in enumerate(seen):
        known = columns_for(name, csv)
        there = [column for column in known if column in header]
        if len(there) != 1:
            are = "several columns are" if there else "no column is"
            raise GenotypeError(
                f"{rows.title}: {are} the covariate '{name}', which the model sees",
                got=listing(there or header),
                expected=f"a column {' or '.join(known)} with {values_of(seen, name)} in each row",
                do="keep one of them" if there else did_you_mean(name, header, do),
            )
        codes, distinct = pd.factorize(np.array(guides.get(there[0], rows.frame.get(there[0])), dtype=object))
        values, wrong = [], dict[str, list[int]]()
        for code, value in enumerate(distinct):
            try:
                values.append(covariate_number(seen, name, value))
            except GenotypeError as error:
                values.append(np.nan)
                wrong[in_one_line(error)] = np.flatnonzero(codes == code).tolist()
        issues += rows.issues(wrong)
        numbers[:, place] = np.array([*values, NEW_NUMBER], np.float32)[codes]  # the last one is of missing values
    return numbers, issues


def _of_guides(seen: Seen, guides: GuideConfig | None, rows: Rows) -> dict[str, Sequence[object]]:
    """Return the covariates of the guides of a table, as far as the model sees them.

    There are none where the training or the table has no guides, or the table has the covariates themselves.
    """
    if guides is None or SITE in rows.frame or not {*guides.columns} <= {*rows.frame}:
        return {}
    known = {*seen.get(SITE, ())}
    try:
        found = guide_covariates(guides, rows, seen.get(SITE, ()))
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


def with_covariates(strains: Strains, seen: Seen, numbers_SC: NDArray[np.float32]) -> Strains:
    """Return strains with what `covariate_number` returns of each, [S, C], for the C covariates that a model sees."""
    columns = (Column(COVARIATE, name, tuple(categories)) for name, categories in seen.items())
    found = dict(zip(columns, numbers_SC.T.copy(), strict=True))
    return strains.with_(columns={**strains.columns, **found}).with_covariates(seen)
