"""Time training steps of the original experiments' models at their batch sizes.

Call ``python -m benchmarks.original_steps OUT``.

Full steps (forward, backward, optimiser) on the generated cell graph of yeast size, three deletions per strain, in one
process, one model after the other. The original's own figures stand beside them: they are of other machines (four RTX
6000 Ada, batches per device), and are there for the ratio between the models, not between machines.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.cells import generated_cell
from benchmarks.timing import clock
from benchmarks.workload import random_genotypes
from dglcell.config.read import load_config
from dglcell.files.atomic import write_json
from dglcell.graph.catalogue import STRING_CHANNELS
from dglcell.graph.resident import ResidentCell
from dglcell.losses.config import MaskedConfig
from dglcell.losses.loss import make_loss
from dglcell.machine.devices import measured_memory
from dglcell.machine.memory import keep_freed_memory
from dglcell.models.config import DangoConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.models.model import count_parameters, make_model
from dglcell.optimizers import make_optimizer
from dglcell.training.autotune import autotuned_for

CONF = Path(__file__).resolve().parents[1] / "conf" / "006-kuzmin-tmi"
TRAINED = 265_850
BUDGET = 15.0
ORIGINAL = {
    "dango_string12_0": "1,336 strains/s on 2 devices",
    "hetero_080": "38 strains/s on 4 devices",
    "hetero_082": "40 strains/s on 4 devices",
    "set_operator_093": None,
}
"""This maps experiments to the strains per second that the original reports, where it reports them."""


def measure(name: str) -> dict[str, Any]:
    """Time one experiment's step with its model, batch size and optimiser.

    Hetero models use squared error in place of their loss, whose terms cost nothing beside the graph.
    """
    config = load_config(CONF / f"{name}.yaml")
    dango = isinstance(config.model, DangoConfig)
    cell = generated_cell()
    relations = [r for r in cell.relations if r[1] in STRING_CHANNELS] if dango else cell.relations
    if isinstance(config.model, DangoConfig):
        config.model.relations = [r[1] for r in relations]
    batch = config.data.training_batch
    torch.manual_seed(0)
    model = make_model(config.model, ResidentCell.of(cell), 1)
    genotypes = random_genotypes(len(cell.genes), batch, 3, seed=0)
    if isinstance(model, HeteroCell):
        model.choose(autotuned_for(model, genotypes).autotuned)
    loss = make_loss(config.loss if dango else MaskedConfig(), config.trainer.epochs)
    optimizer = make_optimizer(config.optimizer, model.parameters())
    target = torch.randn(batch, 1, generator=torch.Generator().manual_seed(0))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model(genotypes), target, 0).total.backward()
        optimizer.step()

    step()  # compiles
    with measured_memory("cpu") as peak:
        timing = clock(step, BUDGET, "cpu")
    return {
        "experiment": name,
        "model": config.model.about(),
        "parameters": count_parameters(model),
        "batch": batch,
        "edges": sum(len(cell.edges(r)) for r in relations),
        "seconds_per_step": round(timing.median, 4),
        "samples_per_second": round(batch / timing.median, 2),
        "peak_memory_bytes": peak.bytes,
        "hours_per_epoch_of_332_313_strains": round(TRAINED / batch * timing.median / 3600, 3),
        "original": ORIGINAL[name],
    }


def main() -> None:
    """Measure all experiments, and write a row at a time."""
    keep_freed_memory()
    out, rows = Path(sys.argv[1]), []
    for name in sys.argv[2:] or ORIGINAL:
        rows.append(measure(name))
        print(json.dumps(rows[-1]), flush=True)
        about = {"threads": torch.get_num_threads(), "torch": torch.__version__, "command": " ".join(sys.argv)}
        write_json(out, {"environment": about, "rows": rows})


if __name__ == "__main__":
    main()
