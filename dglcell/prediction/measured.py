"""Evaluate trained models on measured strains that they have not seen, e.g. those of another experiment."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.config.read import experiment_file, load_config
from dglcell.data.columns import COVARIATE, Column, Keys, gene_keys, number_keys, shuffled
from dglcell.data.config import VALIDATION
from dglcell.data.split import Split
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError, listing
from dglcell.metrics import ResultRow, rows_of
from dglcell.prediction.columns import GenotypeColumns, asked_of
from dglcell.prediction.predict import predict_rows
from dglcell.prediction.table import predicted_by
from dglcell.training.checkpoint import Trained
from dglcell.training.predicting import ENSEMBLE, NETWORK, kept_baselines, predicting_with
from dglcell.training.prepare import open_store, refuse_stale, store_of_run
from dglcell.uncertainty import predicted_column

log = logging.getLogger("dglcell")


def rows_on(
    members: Sequence[Trained],
    experiment: str | Path,
    overrides: Sequence[str] = (),
    phenotypes: Mapping[str, str] | None = None,
) -> list[ResultRow]:
    """Evaluate models of runs as ``dglcell.evaluate_on`` does, with rows whose part is the name of the experiment."""
    trained, config = members[0], load_config(experiment_file(experiment), overrides)
    name, known, store = config.experiment.name, trained.phenotypes, open_store(config, "dglcell evaluate")
    refuse_stale(store, config)
    table = store.read()
    measured = dict(phenotypes or {one: one for one in known if one in table.phenotypes})
    wrong = [pair for pair in measured.items() if pair[0] not in known or pair[1] not in table.phenotypes]
    if wrong or not measured:
        got = ", ".join(map("=".join, wrong)) or "none of one name"
        expected = f"{listing(known)} of the model = {listing(table.phenotypes)} of the strains"
        do = "name them, e.g. `--phenotype s_score=digenic_interaction`"
        raise DataError(f"the model and '{name}' have no phenotype to compare", got=got, expected=expected, do=do)
    strains = _new_strains(members, table, name)
    empty = sorted(one for one in set(measured.values()) if np.isnan(strains.phenotypes[one]).all())
    if empty:
        do = "evaluate on another experiment or phenotype, or choose other strains with keys of `data.source`"
        raise DataError(f"no strain of '{name}' that is left has a measured {' or '.join(empty)}", do=do)
    read = GenotypeColumns.of(trained).read(strains, trained.cell.genes).strains
    labels, rows = {one: strains.phenotypes[column] for one, column in measured.items()}, list[ResultRow]()
    for way, without in ((NETWORK, ()), (ENSEMBLE, (ConfigError, DataError))):
        with suppress(*without):  # the run made no ensemble, or its baseline knows deletions alone
            rows += measured_rows([predicting_with(way, member) for member in members], read, labels, name)
    if not trained.run.baselines.is_file():
        return rows
    for phenotype, models in kept_baselines(trained.run, trained.cell).models.items():
        for baseline, model in models.items() if phenotype in measured else ():
            with suppress(DataError):  # it knows deletions alone, and the strains have activities
                predicted = {name: model.predict(read)}
                rows += rows_of(baseline, phenotype, None, predicted, {name: labels[phenotype]}, is_baseline=True)
    return rows


def measured_rows(
    members: Sequence[Trained], read: Strains, labels: Mapping[str, NDArray[Any]], part: str = ""
) -> list[ResultRow]:
    """Return metrics of the mean prediction, a row for each phenotype of the model that has ``labels``."""
    found, rows = predict_rows(members, read), list[ResultRow]()
    for phenotype, values in labels.items():
        predicted = {part: found[predicted_column(phenotype)]}
        rows += rows_of(predicted_by(members, phenotype), phenotype, None, predicted, {part: values})
    return rows


def _new_strains(members: Sequence[Trained], table: Strains, name: str) -> Strains:
    """Return the strains that no member was trained on, and whose genes the cell graph has."""
    trained, genes = members[0], members[0].cell.genes
    unknown = table.total(genes.meant(table.names)[table.targets] < 0) > 0
    seen = np.isin(identities(table, trained), strains_of_runs(members))
    # The wild type is a strain for models that see its covariates.
    idle = (table.num_deletions == 0) & (not asked_of(trained))
    kept = np.flatnonzero(~(unknown | seen | idle))
    said = f"{unknown.sum():,} have genes that the cell graph lacks, {seen.sum():,} were trained on"
    log.info("%s: %s of %s strains; %s", name, f"{len(kept):,}", f"{len(table):,}", said)
    if idle.any():
        log.info("%s: the wild type is left out, as the model sees no covariates", name)
    if not len(kept):
        do = "choose an experiment with other strains, or a model that was not trained on these"
        raise DataError(f"no strain of '{name}' is left to evaluate the model on", got=f"{len(table):,}; {said}", do=do)
    return table.take(kept)


def identities(strains: Strains, trained: Trained) -> Keys:
    """Return a key of each strain, [S], by what makes it another one for a model.

    That is its genes, their activities and the covariates that the model sees and no simulator computes.
    """
    changed = strains.with_targets(strains.left() != 1)
    names = tuple(map(trained.cell.genes.find, strains.names))
    keys = changed.with_(names=names, columns={}, activities=changed.left()).strain_keys
    for name in asked_of(trained):
        if name in strains.covariates:
            categories = strains.covariates[name]
            values = strains.columns[Column(COVARIATE, name, categories)]
            of = gene_keys(categories)[values.astype(np.int64)] if categories else number_keys(values)
            keys = shuffled(keys ^ gene_keys([name])[0], 0) + of
    return keys


def strains_of_runs(members: Sequence[Trained]) -> Keys:
    """Return the strains that a member was trained on, or chosen by, as `identities`."""
    of_stores: dict[str, Keys] = {}  # several seeds may share a store
    found = []
    for member in members:
        split = Split.load(member.run.split)
        store = store_of_run(member.config, split)
        if store.sha256 not in of_stores:
            of_stores[store.sha256] = identities(store.read(), member)
        found.append(of_stores[store.sha256][split.part <= VALIDATION])
    return np.concatenate(found)
