"""Compare learned strengths with measured ones: ``python -m benchmarks.guide_strengths OUT TABLE SEED [SEED …]``.

`conf/110-mathis2020-crispri/random.yaml` learns from growth what a guide of CRISPRi leaves of its gene, by the
mismatches of the guide. TABLE has guides that repress a fluorescent protein, which were measured without growth
(Hawkins et al. 2020): columns variant, original, and relgfp, the activity of the variant relative to its original,
which matches. No model sees it. Of a variant and its original the model says 1 − s, what is repressed. Their ratio is
compared with relgfp, and so is a null model, the number of mismatches.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr

import dglcell
from dglcell.data.sources.guides import MISMATCH
from dglcell.files.atomic import write_json
from dglcell.machine.processor import processor_name
from dglcell.nn.conditions import LearnedStrengths
from dglcell.perturbation.genotype import GenotypeBatch

EXPERIMENT = Path("conf/110-mathis2020-crispri/random.yaml")


def mismatches(variants: list[str], originals: list[str]) -> NDArray[np.bool_]:
    """Return where variants differ from their originals, [V, length], from the end that is far from the PAM."""
    pairs = zip(variants, originals, strict=True)
    return np.array([[a != b for a, b in zip(one, other, strict=True)] for one, other in pairs])


def repressed(learned: LearnedStrengths, conditions: list[str], mismatch_VP: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return 1 − s of guides with these mismatches, [V].

    Args:
        learned: what learns strengths.
        conditions: all conditions that the model sees, in its order.
        mismatch_VP: where guides do not match, from the end that is far from the PAM.
    """
    guides, length = mismatch_VP.shape
    seen = torch.zeros(guides, len(conditions))
    for place in range(length):
        seen[:, conditions.index(f"{MISMATCH}_{length - place}")] = torch.from_numpy(mismatch_VP[:, place]).float()
    batch = replace(GenotypeBatch.from_lists([[0]] * guides), conditions=seen)
    with torch.inference_mode():
        left = learned(batch).strengths
    assert left is not None
    return 1 - left.double().numpy()


def compare(activity: NDArray[np.float64], measured: NDArray[np.float64]) -> dict[str, float]:
    """Return Pearson's and Spearman's correlation."""
    pearson, spearman = np.corrcoef(activity, measured)[0, 1], spearmanr(activity, measured).statistic
    return {"pearson": round(float(pearson), 4), "spearman": round(float(spearman), 4)}


def main(out: str, table: str, *seeds: str) -> None:
    """Write the file."""
    guides = pd.read_csv(table)
    differ, measured = mismatches([*guides["variant"]], [*guides["original"]]), guides["relgfp"].to_numpy()
    found = {}
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            keys = [f"seed={seed}", f"split.seed={seed}", "trainer.threads=1", "null_models=false", "plot=false"]
            run = dglcell.train(EXPERIMENT, *keys, f"paths.runs={folder}")
            model = dglcell.load(run.directory).model
        conditions, learned = [*(model.config.conditions or ())], model.learned
        assert isinstance(learned, LearnedStrengths)
        of_variants, of_originals = (repressed(learned, conditions, differ & some) for some in (True, False))
        found[seed] = compare(of_variants / of_originals, measured)
    about = {
        "command": f"python -m benchmarks.guide_strengths OUT TABLE {' '.join(seeds)}",
        "guides": len(guides),
        "processor": processor_name(),
        "number_of_mismatches": compare(-differ.sum(axis=1).astype(np.float64), measured),
        "mean": {name: round(statistics.fmean(one[name] for one in found.values()), 4) for name in found[seeds[0]]},
    }
    write_json(Path(out), {**about, "seeds": found})


if __name__ == "__main__":
    main(*sys.argv[1:])
