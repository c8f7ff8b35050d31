"""Predict strains with the network and baselines of a run, score them, and choose which of them predicts."""

from __future__ import annotations

import functools
import logging
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.baselines.fit import fit_families, left_out_baselines, load_models, save_models
from dglcell.baselines.problem import Baseline, Problem, Reactions, gene_similarity, in_words
from dglcell.data.columns import COVARIATE
from dglcell.data.dataset import EpochBatches, Normaliser
from dglcell.data.strains import Strains
from dglcell.errors import CheckpointError, ConfigError, count, did_you_mean, listing
from dglcell.files.untrusted import Number, UnreadableError, check_fields, read_json
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import CATALYSES
from dglcell.kernels.spmm import check_kernel
from dglcell.machine import is_out_of_memory
from dglcell.metrics import COLUMNS, ENSEMBLE_OF, HEADLINE, ResultRow, ahead, best_row, format_metric, rows_of
from dglcell.models.model import StrainModel
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.report.run_files import damaged_file
from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import Chosen, Trained
from dglcell.training.prepare import Prepared

log = logging.getLogger("dglcell")

Values = NDArray[np.floating]


@torch.inference_mode()
def predict_strains(
    model: StrainModel, normaliser: Normaliser, dataset: Strains, strains: Tensor, *, batch_size: int
) -> NDArray[np.float32]:
    """Return [n, T] predictions in original units for the strains of these n numbers, on the device of the model."""
    device, counts = next(model.parameters()).device, dataset.offsets.cpu().diff()
    resident, batches = dataset.to(device), EpochBatches(strains, batch_size, shuffle=False, seed=0)
    taken = (resident.take(batch.to(device), int(counts[batch].sum())).perturbations for batch in batches)
    return predict_batches(model, normaliser, taken)


@torch.inference_mode()
def predict_batches(
    model: StrainModel, normaliser: Normaliser, batches: Iterable[GenotypeBatch]
) -> NDArray[np.float32]:
    """Return predictions for the strains of batches on the model's device, [n, T] in original units, in one transfer.

    The states of the wild type that a model keeps during evaluation are computed once for all batches. Where memory
    runs out, this batch and the later ones are cut in two, until they fit.
    """
    device = next(model.parameters()).device
    check_kernel(model.config.kernel, device.type)
    model.eval()
    most, found = sys.maxsize, list[Tensor]()
    for batch in batches:
        first, number = 0, batch.num_strains
        while first < number:
            part = batch if number <= most else batch.part(first, min(first + most, number))
            try:
                found.append(model(part).phenotypes.float())
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or part.num_strains < 2:
                    raise
                most = part.num_strains // 2
                log.warning("memory is not enough for %d strains at once; %d are tried", part.num_strains, most)
            else:
                first += part.num_strains
    return normaliser.to(device).restore(torch.cat(found)).cpu().numpy()


@dataclass(frozen=True)
class Baselines:
    """Hold the fitted baselines of a run, and why others do not apply: phenotype → name → which or why."""

    models: Mapping[str, Mapping[str, Baseline]] = field(default_factory=dict)
    left_out: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def strains_by_part(prepared: Prepared) -> dict[str, Strains]:
    """Return part → its strains."""
    everything = prepared.dataset.numpy()
    return {name: everything.take(numbers.numpy()) for name, numbers in prepared.parts.items()}


def fit_baselines(prepared: Prepared) -> Baselines:
    """Fit all baselines that apply to the training part, for every phenotype; none where every strain trains."""
    if not prepared.evaluated:
        return Baselines()
    models, left_out = {}, {}
    strains = strains_by_part(prepared)
    train, validation = strains["train"], strains["validation"]
    reactions = Reactions(prepared.cell) if CATALYSES in prepared.cell.relations else None
    similarity = functools.cache(lambda: gene_similarity(prepared.cell, train.targets))
    for name in prepared.dataset.phenotypes:
        labels = train.phenotypes[name], validation.phenotypes[name]
        problem = Problem(train, validation, *labels, similarity, reactions)
        log.info("fitting baselines of %s to %s", name, count(int(np.isfinite(problem.y_train).sum()), "strain"))
        left_out[name] = left_out_baselines(problem)
        models[name] = fit_families(problem)
        log.debug("fitted: %s", "; ".join(in_words(of, model) for of, model in models[name].items()))
    return Baselines(models, left_out)


def baselines_of_run(prepared: Prepared, directory: RunDirectory) -> Baselines:
    """Read the baselines that are kept in a run's directory; fit and keep them where it has none of these strains."""
    made_of = {**prepared.hashes, "phenotypes": list(prepared.dataset.phenotypes)}
    try:
        models, about = load_models(directory.baselines, prepared.cell)
        if about["made_of"] == made_of:
            return Baselines(models, about["left_out"])
    except UnreadableError:
        pass  # of a run that was stopped before, or of another version
    found = fit_baselines(prepared)
    save_models(directory.baselines, found.models, {"made_of": made_of, "left_out": found.left_out})
    return found


WITHOUT_BASELINES = "run its `dglcell train` command again, or predict with `--with network`"


def kept_baselines(directory: RunDirectory, cell: CellGraph) -> Baselines:
    """Read the baselines of a finished run."""
    try:
        models, about = load_models(directory.baselines, cell)
    except UnreadableError as error:
        what, got = f"the run '{directory.path}' has no baselines", f"{directory.baselines.name}: {error}"
        raise CheckpointError(what, got=got, do=WITHOUT_BASELINES) from error
    return Baselines(models, about["left_out"])


NETWORK, BASELINE, ENSEMBLE, BEST = "network", "baseline", "ensemble", "best"
WAYS = (BEST, NETWORK, BASELINE, ENSEMBLE)  # what may be asked to predict


@dataclass(frozen=True)
class Choice:
    """Say what predicts a phenotype, as ``results.json`` has it."""

    by: str  #: ``NETWORK``, ``BASELINE`` or ``ENSEMBLE``: the best of the three on the validation part
    name: str  #: its name in the table of results
    why: str  #: the scores by which it was chosen, in words
    baseline: str | None = None  #: name of the best baseline on the validation part; None where none has a score there
    weight: float | None = None  #: weight of this baseline in the ensemble; None where no ensemble is made

    def weight_of(self, way: str) -> float | None:
        """Return the weight of the baseline if one of ``WAYS`` predicts; None if it cannot."""
        of_baseline = None if self.baseline is None else 1.0
        return {NETWORK: 0.0, BASELINE: of_baseline, ENSEMBLE: self.weight}[self.by if way == BEST else way]


SPREAD = 0.1  # of weights around a half, chosen by cross-fits on validation parts (docs/accuracy.md)


def ensemble_weight(network_S: Values, baseline_S: Values, measured_S: Values) -> float:
    """Return the most probable weight of the baseline, from 0 to 1 in hundredths; NaN is no label.

    Errors are normal, and so are weights before any strain is seen, around a half.
    """
    step, rest = baseline_S - network_S, measured_S - (network_S + baseline_S) / 2
    step, rest = (of[~np.isnan(measured_S)].astype(float) for of in (step, rest))
    length = float(step @ step) or 1.0  # no weight is better than another where both predict the same
    shift = float(step @ rest) / length
    shift *= length / (length + float((rest - shift * step).var()) / SPREAD**2)
    return round(min(1.0, max(0.0, 0.5 + shift)), 2)


def mixed(network_S: Values, baseline_S: Values, weight: float) -> Values:
    """Return the mean of two predictions, in which the baseline has a weight; with 1 the network need not predict."""
    return baseline_S if weight == 1 else (1 - weight) * network_S + weight * baseline_S


def ensemble_name(baseline: str, weight: float) -> str:
    """Return the name of an ensemble in tables, with the weight of the baseline."""
    return f"{ENSEMBLE_OF}{baseline} ({weight:.2f})"


def choose(rows: Mapping[str, ResultRow | None], weight: float | None, note: str) -> Choice:
    """Return what predicts a phenotype: the best by its score on the validation part.

    The test part is not used, because a choice that is made by it cannot be judged by it. Of equal ones the network is
    taken before the baseline, and the baseline before the ensemble; a note says why no ensemble is made.
    """
    found = {by: row for by, row in rows.items() if row is not None}
    if NETWORK not in found or BASELINE not in found:
        return Choice(NETWORK, found[NETWORK].model if NETWORK in found else "", note)
    metric = HEADLINE[kind := found[NETWORK].kind]
    scores = {by: row.metrics.get(metric, math.nan) for by, row in found.items()}
    by = max(scores, key=lambda by: scores[by] if math.isfinite(scores[by]) else -math.inf)
    said = ", ".join(f"{row.model} {format_metric(metric, scores[by])}" for by, row in found.items())
    strains = count(int(found[NETWORK].metrics.get("n", 0)), "validation strain")
    why = f"{COLUMNS[kind][metric]} on {strains}: {said}" + (f"; {note}" if note else "")
    return Choice(by, found[by].model, why, found[BASELINE].model, weight)


def predicting_with(way: str, trained: Trained) -> Trained:
    """Return the trained model with what predicts each phenotype."""
    if way not in WAYS:
        raise ConfigError("what shall predict?", got=way, expected=listing(WAYS), do=did_you_mean(way, WAYS, None))
    own, (choices, is_same) = trained.config.model.name, _choices_of(trained)
    kept: Mapping[str, Mapping[str, Baseline]] | None = None
    chosen = {}
    for phenotype in trained.phenotypes:
        choice = choices.get(phenotype, Choice(NETWORK, own, ""))
        if not is_same and way in (BEST, ENSEMBLE):
            choice = Choice(NETWORK, own, "the run chose with another checkpoint", choice.baseline)
        weight, name, baseline = choice.weight_of(way), own, None
        if weight is None:
            what, got = f"the run '{trained.run.path}' has no {way} for {phenotype}", choice.why
            raise ConfigError(what, got=got or "a run without baselines", do="leave out `--with`")
        if weight > 0:
            assert choice.baseline is not None
            kept = kept_baselines(trained.run, trained.cell).models if kept is None else kept
            baseline = kept[phenotype].get(choice.baseline)
            if baseline is None:
                what = f"the run '{trained.run.path}' predicts by '{choice.baseline}', which has left the package"
                raise CheckpointError(what, do=WITHOUT_BASELINES)
        by = choice.by if way == BEST else way
        if by != NETWORK and choice.baseline is not None:
            name = choice.baseline if by == BASELINE else ensemble_name(choice.baseline, weight)
        chosen[phenotype] = Chosen(name, baseline, weight, is_best=weight == choice.weight_of(BEST), why=choice.why)
    return replace(trained, chosen=chosen)


def _choices_of(trained: Trained) -> tuple[dict[str, Choice], bool]:
    """Return phenotype → choice of a run, none of one that is not finished, and whether they are of this checkpoint."""
    if not (results := trained.run.results).is_file():
        return {}, True
    try:
        check_fields(content := read_json(results), {"": dict[str, Any]})
        content.setdefault("predicts", {})
        check_fields(content, {"predicts": dict[str, dict[str, Any]]})
        kinds = {"by": Literal["network", "baseline", "ensemble"], "name": str, "why": str, "weight": Number | None}
        for one in content["predicts"].values():
            check_fields(one, kinds)
        choices = {name: Choice(**one) for name, one in content["predicts"].items()}
    except (UnreadableError, TypeError) as error:
        raise damaged_file(results, error) from error
    return choices, (content.get("checkpoint"), content.get("epoch")) == (trained.path.name, trained.epoch)


@dataclass
class Scored:
    """Hold what was found of the models of a run."""

    #: rows of the table, for each phenotype those of the network, the ensemble and the baselines
    rows: list[ResultRow] = field(default_factory=list)
    #: phenotype → what predicts it; nothing where there was no network
    choices: dict[str, Choice] = field(default_factory=dict)
    #: part → [S, T] predictions of what predicts, and of the network, in original units
    chosen: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    of_network: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)


def same_covariates(strains: Strains) -> NDArray[np.int64]:
    """Return the number of a group for each strain, [S]: strains of a group have the same medium and other classes."""
    columns = [np.asarray(values) for c, values in strains.columns.items() if c.kind == COVARIATE and c.categories]
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

    The predictions of the network are in original units, [S, T]; None where baselines stand alone. Its lead over each
    baseline on the test part is among their metrics (`dglcell.metrics.ahead`).
    """
    dataset, few = prepared.dataset, prepared.too_few_to_choose()
    strains = {part: of for part, of in strains_by_part(prepared).items() if part in prepared.evaluated}
    groups = {part: same_covariates(of) for part, of in strains.items()}
    found = Scored(of_network=predictions or {})
    found.chosen = {part: values_ST.copy() for part, values_ST in found.of_network.items()}
    for t, (name, kind) in enumerate(zip(dataset.phenotypes, dataset.kinds, strict=True)):
        labels = {part: of.phenotypes[name] for part, of in strains.items()}
        rows = functools.partial(rows_of, phenotype=name, kind=kind, measured=labels, groups=groups)
        fitted = baselines.models.get(name, {}).items()
        predicted = {one: {part: model.predict(of) for part, of in strains.items()} for one, model in fitted}
        of_baselines = [row for one, of in predicted.items() for row in rows(one, predicted=of, is_baseline=True)]
        if predictions is None:
            found.rows += of_baselines
            continue
        own = {part: values_ST[:, t] for part, values_ST in predictions.items()}
        of_network = rows(network, predicted=own)
        if "test" in own:
            others = {one: of["test"] for one, of in predicted.items()}
            leads = ahead(kind, own["test"], others, labels["test"], strains["test"])
            of_baselines = [
                row.with_metrics(leads.get(row.model, {})) if row.part == "test" else row for row in of_baselines
            ]
        best = best_row([row for row in of_baselines if row.part == "validation"], HEADLINE[kind])
        weight, of_ensemble = None, list[ResultRow]()
        if best is not None and few is None:
            weight = ensemble_weight(own["validation"], predicted[best.model]["validation"], labels["validation"])
            both = {part: mixed(own[part], predicted[best.model][part], weight) for part in own}
            of_ensemble = rows(ensemble_name(best.model, weight), predicted=both)
        unscored = "no baseline has a score on the validation part" if predicted else "no baselines were fitted"
        note = unscored if best is None else "too few for an ensemble" if few else ""
        first, third = (next((row for row in of if row.part == "validation"), None) for of in (of_network, of_ensemble))
        choice = choose({NETWORK: first, BASELINE: best, ENSEMBLE: third}, weight, note)
        if share := choice.weight_of(choice.by):
            for part, values_S in own.items():
                found.chosen[part][:, t] = mixed(values_S, predicted[choice.baseline or ""][part], share)
        found.rows += [*of_network, *of_ensemble, *of_baselines]
        found.choices[name] = choice
    return found
