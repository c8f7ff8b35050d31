"""Time training steps with media in either form: ``python -m benchmarks.media_steps OUT``.

A medium can be computed in two ways that give the same. Either there is one wild type, and a strain's medium is a part
of its difference; this is what the package does. Or every medium has a wild type of its own, and strains differ from it
by genes alone, so that fewer rows differ, and a step encodes as many wild types as its strains have media. Steps
without media cost what strains cost in the second way, so that no such form can be faster than these:

- ``as differences``: steps as they are;
- ``a medium a step``: steps whose strains share one medium, so that one wild type is encoded;
- ``mixed``: the same strains, one medium after the other, which is what a shuffled batch asks for.

All are steps of the model of `conf/113-fba-strengths-media/new_media.yaml` without flux rounds, which do not depend on
the form, on strains with one or two weakened genes, in one process with one thread, in turns.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import torch

from dglcell.config.read import load_config
from dglcell.data.columns import MEDIUM
from dglcell.files.atomic import write_json
from dglcell.graph.cell import build_cell
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import REACTION
from dglcell.machine.processor import processor_name
from dglcell.models.encoder import PerturbedModel
from dglcell.models.model import make_model
from dglcell.perturbation.genotype import GenotypeBatch

EXPERIMENT = Path("conf/113-fba-strengths-media/new_media.yaml")
STRENGTHS = (0.0, 0.1, 0.3, 0.5, 0.8)
TURNS = 15


def random_strains(genes: int, strains: int, media: torch.Tensor) -> GenotypeBatch:
    """Draw strains with one or two weakened genes each, in given media."""
    draw = torch.Generator().manual_seed(0)

    def genotype() -> dict[int, float]:
        number = int(torch.randint(1, 3, (), generator=draw))
        chosen = torch.randperm(genes, generator=draw)[:number].tolist()
        return {gene: STRENGTHS[int(torch.randint(len(STRENGTHS), (), generator=draw))] for gene in chosen}

    batch = GenotypeBatch.from_lists([genotype() for _ in range(strains)], genes)
    return GenotypeBatch(
        batch.genes,
        batch.offsets,
        batch.max_deletions,
        strengths=None if batch.strengths is None else batch.strengths.float(),
        conditions=media[:, None].float(),
    )


def seconds(model: PerturbedModel, batches: list[GenotypeBatch], strengths: torch.Tensor | None) -> float:
    """Return what forward and backward passes of batches take.

    Args:
        model: the model.
        batches: the strains.
        strengths: of the reactions that differ between media; None where strains are in no medium.
    """
    kept, model.media_strengths = model.media_strengths, strengths
    start = time.perf_counter()
    for batch in batches:
        model(batch).phenotypes.square().mean().backward()
    model.media_strengths = kept
    return time.perf_counter() - start


def main(out: str, *overrides: str) -> None:
    """Write the file."""
    torch.set_num_threads(1)
    config = load_config(EXPERIMENT, ["model.flux_rounds=0", *overrides])
    cell = build_cell(config.cell, config.paths.raw)
    media, size = list(config.cell.media), config.data.training_batch
    config.model.conditions, config.model.strength_curves = {MEDIUM: media}, True
    torch.manual_seed(0)
    model = make_model(config.model, ResidentCell.of(cell), 1)
    assert isinstance(model, PerturbedModel)
    assert isinstance(model.media_strengths, torch.Tensor)
    strengths = model.media_strengths
    codes = torch.arange(size) % len(media)
    mixed = random_strains(len(cell.genes), size, codes)
    alone = [codes[codes == code] for code in codes.unique()]
    apart = [random_strains(len(cell.genes), len(same), same) for same in alone]
    forms = {
        "as differences": ([mixed], strengths),
        "a medium a step": ([mixed], None),
        "mixed": (apart, None),
    }
    found: dict[str, list[float]] = {name: [] for name in forms}
    for turn in range(TURNS + 1):
        for name, (batches, of_media) in forms.items():
            taken = seconds(model, batches, of_media)
            if turn:  # the first turn compiles loops
                found[name].append(taken)
    medians = {name: statistics.median(times) for name, times in found.items()}
    as_is = medians["as differences"]
    write_json(
        Path(out),
        {
            "command": "python -m benchmarks.media_steps OUT",
            "experiment": config.experiment.name,
            "processor": processor_name(),
            "strains": size,
            "media": len(media),
            "reaction_nodes": cell.num_nodes[REACTION],
            "reactions_that_differ_between_media": strengths.shape[1],
            "ratio_of_medians": {name: round(as_is / of, 3) for name, of in medians.items()},
            "milliseconds": {name: round(1000 * of, 2) for name, of in medians.items()},
        },
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
