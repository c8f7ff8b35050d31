"""Fit the baselines of a run, score them, the network and an ensemble, and choose which of them predicts."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dglcell.baselines.fit import fit_families, left_out_baselines, load_models, save_models
from dglcell.baselines.problem import Baseline, Problem, in_words
from dglcell.baselines.similarity import Reactions, gene_similarity
from dglcell.data.columns import COVARIATE
from dglcell.data.strains import Strains
from dglcell.errors import CheckpointError, ConfigError, count, did_you_mean, listing
from dglcell.files.untrusted import Number, UnreadableError, check_fields, read_json
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import CATALYSES
from dglcell.metrics import COLUMNS, ENSEMBLE_OF, HEADLINE, ResultRow, best_row, format_metric, rows_of
from dglcell.report.run_files import damaged_file
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import Chosen, Trained
from dglcell.training.prepare import Prepared
from dglcell.uncertainty.paired import ahead

log = logging.getLogger("dglcell")


@dataclass(frozen=True)
class Baselines:
    """Hold the fitted baselines of a run."""

    #: phenotype → name → the fitted baseline
    models: Mapping[str, Mapping[str, Baseline]] = field(default_factory=dict)
    #: phenotype → name → why the baseline does not apply
    left_out: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def strains_by_part(prepared: Prepared) -> dict[str, Strains]:
    """Return part → its strains."""
    everything = prepared.dataset.numpy()
    return {name: everything.take(numbers.numpy()) for name, numbers in prepared.parts.items()}


def problems(prepared: Prepared) -> dict[str, Problem]:
    """Return phenotype → what its baselines are fitted to; all strains are in memory."""
    dataset, strains = prepared.dataset, strains_by_part(prepared)
    reactions = Reactions(prepared.cell) if CATALYSES in prepared.cell.relations else None
    similarity = functools.cache(lambda: gene_similarity(prepared.cell, strains["train"].targets))
    return {
        name: Problem(
            strains["train"],
            strains["validation"],
            strains["train"].phenotypes[name],
            strains["validation"].phenotypes[name],
            similarity=similarity,
            most_deletions=dataset.max_deletions,
            reactions=reactions,
        )
        for name in dataset.phenotypes
    }


def fit_baselines(prepared: Prepared) -> Baselines:
    """Fit all baselines that apply to the training part, for every phenotype; none where every strain trains."""
    models, left_out = {}, {}
    for phenotype, problem in problems(prepared).items() if prepared.evaluated else ():
        strains = count(int(np.isfinite(problem.y_train).sum()), "strain")
        log.info("fitting baselines of %s to %s", phenotype, strains)
        left_out[phenotype] = left_out_baselines(problem)
        models[phenotype] = fit_families(problem)
        log.debug("fitted: %s", "; ".join(in_words(name, model) for name, model in models[phenotype].items()))
    return Baselines(models, left_out)


def baselines_of_run(prepared: Prepared, directory: RunDirectory) -> Baselines:
    """Read the baselines that are kept in a run's directory; fit and keep them where it has none of these strains."""
    made_of = _made_of(prepared)
    try:
        models, about = load_models(directory.baselines, prepared.cell)
        if about["made_of"] == made_of:
            return Baselines(models, about["left_out"])
    except UnreadableError:
        pass  # of a run that was stopped before, or of another version
    found = fit_baselines(prepared)
    save_models(directory.baselines, found.models, {"made_of": made_of, "left_out": found.left_out})
    return found


def kept_baselines(directory: RunDirectory, cell: CellGraph) -> Baselines:
    """Read the baselines of a finished run.

    Raises:
        CheckpointError: the directory has none, or the file is damaged.
    """
    try:
        models, about = load_models(directory.baselines, cell)
    except UnreadableError as error:
        do = "run its `dglcell train` command again, or predict with `--with network`"
        got = f"{directory.baselines.name}: {error}"
        raise CheckpointError(f"the run '{directory.path}' has no baselines", got=got, do=do) from error
    return Baselines(models, about["left_out"])


def _made_of(prepared: Prepared) -> dict[str, Any]:
    return {
        "cell": prepared.cell.sha256,
        "store": prepared.store.sha256,
        "split": prepared.split.sha256,
        "phenotypes": list(prepared.dataset.phenotypes),
    }


NETWORK, BASELINE, ENSEMBLE, BEST = "network", "baseline", "ensemble", "best"
WAYS = (BEST, NETWORK, BASELINE, ENSEMBLE)
"""What may be asked to predict."""


@dataclass(frozen=True)
class Choice:
    """Say what predicts a phenotype, as ``results.json`` has it."""

    by: str  #: ``NETWORK``, ``BASELINE`` or ``ENSEMBLE``: the best of the three on the validation part
    name: str  #: its name in the table of results
    why: str  #: the scores by which it was chosen, in words
    baseline: str | None = None  #: name of the best baseline on the validation part; None where none has a score there
    weight: float | None = None  #: weight of this baseline in the ensemble; None where no ensemble is made

    def weight_of(self, way: str) -> float | None:
        """Return the weight of the baseline if the network, the baseline or the ensemble predicts; None if it cannot.

        Args:
            way: one of ``WAYS``.
        """
        way = self.by if way == BEST else way
        of_baseline = None if self.baseline is None else 1.0
        return {NETWORK: 0.0, BASELINE: of_baseline, ENSEMBLE: self.weight}[way]


def ensemble_weight(
    network_S: NDArray[np.floating], baseline_S: NDArray[np.floating], measured_S: NDArray[np.floating]
) -> float:
    """Return the weight of the baseline with the least squared error, from 0 to 1 in hundredths.

    Args:
        network_S, baseline_S: predictions for the validation strains.
        measured_S: labels, NaN where missing.
    """
    known = ~np.isnan(measured_S)
    network, step = network_S[known].astype(float), (baseline_S - network_S)[known].astype(float)
    length = float(step @ step)
    best = float(step @ (measured_S[known] - network)) / length if length > 0 else 0.0
    return round(min(1.0, max(0.0, best)), 2)


def mixed(network_S: NDArray[np.floating], baseline_S: NDArray[np.floating], weight: float) -> NDArray[np.floating]:
    """Return the mean of two predictions, in which the baseline has a weight; with 1 the network need not predict."""
    return baseline_S if weight == 1 else (1 - weight) * network_S + weight * baseline_S


def ensemble_name(baseline: str, weight: float) -> str:
    """Return the name of an ensemble in tables, with the weight of the baseline."""
    return f"{ENSEMBLE_OF}{baseline} ({weight:.2f})"


def choose(
    network: ResultRow | None, baseline: ResultRow | None, ensemble: ResultRow | None, weight: float | None, note: str
) -> Choice:
    """Return what predicts a phenotype: the best by its score on the validation part.

    The test part is not used, because a choice that is made by it cannot be judged by it. Of equal ones the network is
    taken before the baseline, and the baseline before the ensemble.

    Args:
        network: row of the network on the validation part; None where there is no such part.
        baseline: that of the best baseline there; None where none has a score.
        ensemble: that of both together; None where no ensemble is made.
        weight: weight of the baseline in it.
        note: why no ensemble is made.
    """
    if network is None or baseline is None:
        return Choice(NETWORK, "" if network is None else network.model, note)
    metric = HEADLINE[network.kind]
    three = {NETWORK: network, BASELINE: baseline} | ({} if ensemble is None else {ENSEMBLE: ensemble})
    scores = {by: row.metrics.get(metric, math.nan) for by, row in three.items()}
    by = max(scores, key=lambda by: scores[by] if math.isfinite(scores[by]) else -math.inf)
    said = ", ".join(f"{row.model} {format_metric(metric, scores[by])}" for by, row in three.items())
    title = COLUMNS[network.kind][metric]
    strains = count(int(network.metrics.get("n", 0)), "validation strain")
    why = f"{title} on {strains}: {said}" + (f"; {note}" if note else "")
    return Choice(by, three[by].model, why, baseline.model, weight)


def choices_as_json(choices: Mapping[str, Choice]) -> dict[str, Any]:
    """Return choices as they are written to ``results.json``."""
    return {phenotype: asdict(choice) for phenotype, choice in choices.items()}


def predicting_with(way: str, trained: Trained, run: Path) -> Trained:
    """Return the trained model with what predicts each phenotype.

    Raises:
        CheckpointError: the run has no baselines, or its ensemble is of another checkpoint.
        ConfigError: ``way`` is none of these, or the run made no ensemble.
    """
    if way not in WAYS:
        raise ConfigError("what shall predict?", got=way, expected=listing(WAYS), do=did_you_mean(way, WAYS, None))
    directory = RunDirectory(run)
    own = trained.config.model.name
    choices, is_same = _choices_of(directory, trained)
    kept: Mapping[str, Mapping[str, Baseline]] | None = None
    chosen = {}
    for phenotype in trained.phenotypes:
        choice = choices.get(phenotype, Choice(NETWORK, own, ""))
        if not is_same and way in (BEST, ENSEMBLE):
            choice = Choice(NETWORK, own, "the run chose with another checkpoint", choice.baseline)
        weight = choice.weight_of(way)
        if weight is None:
            got = choice.why or "a run without baselines"
            raise ConfigError(f"the run '{run}' has no {way} for {phenotype}", got=got, do="leave out `--with`")
        baseline = None
        if weight > 0:
            assert choice.baseline is not None
            kept = kept_baselines(directory, trained.cell).models if kept is None else kept
            baseline = kept[phenotype][choice.baseline]
        name = _name(choice.by if way == BEST else way, own, choice)
        chosen[phenotype] = Chosen(name, baseline, weight, is_best=weight == choice.weight_of(BEST), why=choice.why)
    return replace(trained, chosen=chosen)


def _name(by: str, own: str, choice: Choice) -> str:
    if by == NETWORK or choice.baseline is None:
        return own
    return choice.baseline if by == BASELINE else ensemble_name(choice.baseline, choice.weight or 0.0)


def _choices_of(directory: RunDirectory, trained: Trained) -> tuple[dict[str, Choice], bool]:
    """Return phenotype → choice of a run, none of one that is not finished, and whether they are of this checkpoint."""
    if not directory.results.is_file():
        return {}, True
    try:
        content = read_json(directory.results)
        check_fields(content, {"": dict[str, Any]})
        found = content.get("predicts", {})
        check_fields(found, {"": dict[str, dict[str, Any]]})
        for one in found.values():
            check_fields(one, {"by": Literal["network", "baseline", "ensemble"], "name": str, "why": str})
            check_fields(one, {"weight": Number | None})
        choices = {name: Choice(**one) for name, one in found.items()}
    except (UnreadableError, TypeError) as error:
        raise damaged_file(directory.results, error) from error
    return choices, (content.get("checkpoint"), content.get("epoch")) == (trained.path.name, trained.epoch)


Values = NDArray[np.floating]


@dataclass(frozen=True)
class Scored:
    """Hold what was found of the models of a run."""

    #: rows of the table, for each phenotype those of the network, the baselines and the ensemble
    rows: list[ResultRow] = field(default_factory=list)
    #: phenotype → what predicts it; nothing where there was no network
    choices: dict[str, Choice] = field(default_factory=dict)
    #: part → [S, T] predictions of what predicts, in original units
    chosen: dict[str, NDArray[np.float32]] = field(default_factory=dict)


def same_covariates(strains: Strains) -> NDArray[np.int64]:
    """Return the number of a group for each strain, [S]: strains of a group have the same medium and other classes."""
    columns = [
        np.asarray(values)
        for column, values in strains.columns.items()
        if column.kind == COVARIATE and column.categories
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
            found.rows.extend(row for name, of in of_baselines.items() for row in one.rows(name, of, is_baseline=True))
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

    def rows(self, model: str, predicted: Mapping[str, Values], *, is_baseline: bool = False) -> list[ResultRow]:
        labels = {part: of.phenotypes[self.name] for part, of in self.strains.items()}
        groups = {part: same_covariates(of) for part, of in self.strains.items()}
        return rows_of(model, self.name, self.kind, predicted, labels, is_baseline=is_baseline, groups=groups)

    def compared(
        self, network: str, own: Mapping[str, Values], baselines: Mapping[str, Mapping[str, Values]], few: str | None
    ) -> tuple[list[ResultRow], Choice, dict[str, Values]]:
        """Return the rows of the network, of an ensemble and of baselines, the choice, and what it predicts."""
        of_network = self.rows(network, own)
        of_baselines = [row for name, of in baselines.items() for row in self.rows(name, of, is_baseline=True)]
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
        unscored = "no baseline has a score on the validation part" if baselines else "no baselines were fitted"
        note = unscored if best is None else "too few for an ensemble" if few else ""
        first, third = (next(iter(_on_validation(rows)), None) for rows in (of_network, of_ensemble))
        choice = choose(first, best, third, weight, note)
        share = choice.weight_of(choice.by) or 0.0
        chosen = dict(own)
        if share:
            chosen = {part: mixed(own[part], baselines[choice.baseline or ""][part], share) for part in own}
        return [*of_network, *of_ensemble, *of_baselines], choice, chosen


def _on_validation(rows: list[ResultRow]) -> list[ResultRow]:
    return [row for row in rows if row.part == "validation"]
