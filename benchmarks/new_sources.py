"""Ask what an experiment on media says of a source that training lacks: ``python -m benchmarks.new_sources OUT SEED``.

Of `conf/112-faure2023-media/ten_fold.yaml` each of the ten carbon sources is left out once: media with it are the test
part, and the model and the null models are trained on others. The file has the scores for each source, and the mean of
how far the model is ahead in Pearson's r, with Student's interval at 95 % over the sources.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import dglcell
from benchmarks.new_genes import over_draws
from dglcell.config.read import load_config
from dglcell.files.atomic import write_json
from dglcell.machine.processor import processor_name

EXPERIMENT = Path("conf/112-faure2023-media/ten_fold.yaml")
MEASURES = ("pearson", "r2", "mae")
MODEL = "model"


def left_out(source: str) -> list[str]:
    """Return the keys that put all media with a source, and no other, into the test part."""
    return [
        "split.kind=condition", f"split.condition={source}", 'split.test_values=["1"]', "split.folds=null",
        "split.fold=null",
    ]  # fmt: skip


def without(source: str, seed: str, folder: str) -> dict[str, Any]:
    """Return how many media have the source, and the scores of the model and of null models on them."""
    keys = [f"seed={seed}", f"split.seed={seed}", "trainer.threads=1", "plot=false", f"paths.runs={folder}"]
    run = dglcell.train(EXPERIMENT, *left_out(source), *keys, f"experiment.name={source}")
    test = run.results[run.results.part == "test"]
    names = [name if is_null else MODEL for name, is_null in zip(test.model, test.is_null, strict=True)]
    rows = [[None if value != value else round(float(value), 4) for value in row] for row in test[[*MEASURES]].values]
    return {
        "source": source,
        "media": int(test.n.iloc[0]),
        "scores": {name: dict(zip(MEASURES, row, strict=True)) for name, row in zip(names, rows, strict=True)},
    }


def main(out: str, seed: str) -> None:
    """Write the file."""
    csv = load_config(EXPERIMENT).data.source.csv
    assert csv is not None
    with tempfile.TemporaryDirectory() as folder:
        records = [without(source, seed, folder) for source in csv.conditions]
    of_sources = [record["scores"] for record in records]
    named = [name for name in of_sources[0] if all(one[name]["pearson"] is not None for one in of_sources)]
    write_json(
        Path(out),
        {
            "command": f"python -m benchmarks.new_sources OUT {seed}",
            "processor": processor_name(),
            "sources": records,
            "means": {
                name: {key: round(statistics.fmean(one[name][key] for one in of_sources), 4) for key in MEASURES}
                for name in named
            },
            "ahead": {name: over_draws(of_sources, name, "pearson") for name in named if name != MODEL},
        },
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
