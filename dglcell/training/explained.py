"""Explain the most extreme strains of the test part of a run, for its report."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import ConfigError
from dglcell.explanations.files import as_json
from dglcell.explanations.split import check_model
from dglcell.explanations.tables import explain
from dglcell.files.atomic import write_json
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import Trained
from dglcell.training.prepare import Prepared

SHOWN, MOST_PHENOTYPES = 3, 2
"""Of so many phenotypes, so many strains are explained for each reason."""

MOST_WORK = 2**29
"""Runs whose edges times layers times hidden units are more than this are not explained, so that reports stay quick."""

STRONGEST, MISSED = "strongest prediction", "largest error"
"""A strain is in the report for these reasons."""


def write_explained(
    directory: RunDirectory, trained: Trained, prepared: Prepared, predicted_ST: NDArray[np.float32] | None
) -> None:
    """Explain the test strains with the strongest predictions and the largest errors, and write them for the report.

    There is no file where the model cannot be explained, where it is too large, and where there is no test part.

    Args:
        directory: directory of the run.
        trained: its model.
        prepared: its data.
        predicted_ST: predictions for the test part.
    """
    directory.explanations.unlink(missing_ok=True)
    if predicted_ST is None or not len(predicted_ST) or not explains(trained):
        return
    measured_ST = prepared.dataset.labels[prepared.parts["test"]].cpu().numpy()
    rows = prepared.parts["test"].numpy()
    chosen = [
        (t, place, why)
        for t in range(min(MOST_PHENOTYPES, predicted_ST.shape[1]))
        for place, why in extremes(predicted_ST[:, t], measured_ST[:, t])
    ]
    if not chosen:
        return
    strains = prepared.dataset.numpy().take(rows[[place for _, place, _ in chosen]])
    records = as_json(explain([trained], strains))["strains"]
    of_strain = {(record["strain"], record["phenotype"]): record for record in records}
    shown = []
    for number, (t, place, why) in enumerate(chosen):
        measured = float(measured_ST[place, t])
        record = of_strain[number, trained.phenotypes[t]]
        shown.append({**record, "why": why, "measured": None if math.isnan(measured) else measured})
    write_json(directory.explanations, {"strains": shown})


def explains(trained: Trained) -> bool:
    """Return whether the report of a run explains strains."""
    try:
        model = check_model(trained.model)
    except ConfigError:
        return False
    return trained.cell.num_edges * max(1, model.config.layers) * model.config.hidden <= MOST_WORK


def extremes(predicted_S: NDArray[np.float32], measured_S: NDArray[np.float32]) -> Iterator[tuple[int, str]]:
    """Yield the strains farthest from the median prediction, and those with the largest errors; each once."""
    seen = set[int]()
    strength_S = np.abs(predicted_S - np.nanmedian(predicted_S))
    for key_S, why in ((strength_S, STRONGEST), (np.abs(predicted_S - measured_S), MISSED)):
        usable = np.where(np.isfinite(key_S), key_S, -np.inf)
        ranked = np.argsort(-usable, kind="stable").tolist()
        chosen = [place for place in ranked if usable[place] > 0 and place not in seen][:SHOWN]
        seen.update(chosen)
        yield from ((place, why) for place in chosen)
