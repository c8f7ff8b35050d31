"""Measure how many digits of what a model reads are right: ``python -m benchmarks.precision OUT [--raw FOLDER]``.

Relative errors against float64 on the generated cell graph of yeast size, and with ``--raw`` on the public networks, of
a ``hetero_cell`` with fresh weights and of the same one after a short training on random targets. Strains come in
triples: gene i deleted, gene j deleted, both deleted. Four errors are taken, the first three for every triple:

- of pooled differences z_w − z_i, which the global head reads;
- of second differences z(ij) − z(i) − z(j) + z_w, which hold all that pooled states say about an interaction;
- of predictions, by a global head alone, which reads nothing but pooled differences;
- of the gradient of a squared error over the strains of two pairs: one vector of all parameters.

An error is ``‖a − a₆₄‖ / ‖a₆₄‖``. TF32 is emulated: the inputs of every product of a Linear layer and a difference are
rounded to 10 bits behind the leading one, forward and backward.

Versions up to 9543d21 kept whole states. What was measured of the last of them stands in OUT as ``before``, and stays
there when the rest is measured again.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.cells import generated_cell
from dglcell.config.read import load_config
from dglcell.files.atomic import write_json
from dglcell.graph.cell import build_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE
from dglcell.machine.memory import keep_freed_memory
from dglcell.models.config import HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation.choices import Choices
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.runs.usage import environment

CONF = Path(__file__).resolve().parents[1] / "conf"
STRATEGIES = ("difference", "node_mask")
PRECISIONS = ("float32", "tf32", "bfloat16")
TRAINING = {"steps": 30, "batch_size": 8, "lr": 1e-3}
PAIRS_OF_GRADIENT = 2

Outcome = dict[str, Tensor]


# These functions compute matrix products with fewer digits.


def tf32(x: Tensor) -> Tensor:
    """Round to 10 bits behind the leading one; ties go away from zero."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


class _RoundedProduct(torch.autograd.Function):
    """This function computes ``x Wᵀ`` with rounded factors, and both gradients likewise."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return tf32(x) @ tf32(weight).T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        rounded = tf32(grad)
        of_weight = rounded.flatten(0, -2).T @ tf32(x).flatten(0, -2)
        return rounded @ tf32(weight), of_weight


def tf32_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute a Linear layer in TF32."""
    out: Tensor = _RoundedProduct.apply(x, weight)
    return out if bias is None else out + bias


@contextmanager
def differences_in_tf32() -> Iterator[None]:
    """Compute products of differences' Linear layers in TF32; those of the base stay as they are."""
    from dglcell.perturbation.rules import RULES, PerturbedTensor

    plain = RULES["linear"]

    def rule(x: PerturbedTensor, weight: Tensor, bias: Tensor | None = None) -> PerturbedTensor:
        delta = None if x.delta is None else tf32_linear(x.delta, weight)
        return PerturbedTensor(F.linear(x.base, weight, bias), delta, x.rows)

    RULES["linear"] = rule
    try:
        yield
    finally:
        RULES["linear"] = plain


# These functions make and train the model.


def public_cell(raw: Path) -> CellGraph:
    """Build the networks of conf/101-collins2007."""
    return build_cell(load_config(CONF / "101-collins2007" / "random.yaml").cell, str(raw))


def make_model(cell: CellGraph, layers: int) -> HeteroCell:
    """Make GIN with fresh weights, H = 64, genes alone; the head on deleted genes, which reads no difference, is left
    out.
    """
    torch.manual_seed(0)
    config = HeteroCellConfig(hidden=64, layers=layers, metabolism=False, local_head=False, combination="none")
    return HeteroCell(ResidentCell.of(cell), config)


def train(model: HeteroCell) -> None:
    """Train briefly on random pairs of genes with random targets."""
    generator = torch.Generator().manual_seed(1)
    number, size = model.cell.num_nodes[GENE], TRAINING["batch_size"]
    optimiser = torch.optim.AdamW(model.parameters(), lr=TRAINING["lr"])
    for _ in range(int(TRAINING["steps"])):
        genes = torch.randint(number, (int(size), 2), generator=generator)
        targets = torch.randn(int(size), 1, generator=generator)
        out = model(GenotypeBatch.from_lists([sorted(set(pair)) for pair in genes.tolist()]))
        optimiser.zero_grad()
        F.mse_loss(out.phenotypes, targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimiser.step()


def outcome(model: HeteroCell, pairs: list[list[int]]) -> Outcome:
    """Return what a model computes for all strains, and a loss's gradient for those of the first pairs."""
    model.train()  # in training mode nothing is kept from call to call; there is no dropout
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        out = model(strains_of(pairs))
    first = out.embedding.double().unflatten(0, (len(pairs), 3))
    few = model(strains_of(pairs[:PAIRS_OF_GRADIENT])).phenotypes
    targets = torch.randn(len(few), 1, generator=torch.Generator().manual_seed(2))
    F.mse_loss(few, targets.to(few.dtype)).backward()
    gradients = [p.grad.flatten().double() for p in model.parameters() if p.grad is not None]
    return {
        "differences": first.flatten(1),
        "second_differences": first[:, 0] + first[:, 1] - first[:, 2],
        "predictions": out.phenotypes.double().view(len(pairs), 3),
        "gradients": torch.cat(gradients).unsqueeze(0),
    }


def strains_of(pairs: list[list[int]]) -> GenotypeBatch:
    """Return the strains of every pair: without i, without j and without both."""
    return GenotypeBatch.from_lists([strain for i, j in pairs for strain in ([i], [j], [i, j])])


def errors_of(found: Outcome, exact: Outcome) -> dict[str, list[float]]:
    """Return relative errors in the Euclidean norm, one for each pair of genes, and one of the gradient."""
    return {key: ((found[key] - known).norm(dim=1) / known.norm(dim=1)).tolist() for key, known in exact.items()}


# These functions measure errors.


def measure(model: HeteroCell, about: dict[str, Any], pairs: list[list[int]], ways: list[Way]) -> list[dict[str, Any]]:
    """Return errors of every way to compute one model, against float64."""
    model.choose(Choices("node_mask"))
    exact = outcome(model.double(), pairs)
    model.float()
    ratios = exact["second_differences"].norm(dim=1) / exact["differences"].norm(dim=1) * 3**0.5
    rows = []
    for way, (arguments, context) in ways:
        model.choose(Choices(**arguments))
        with context():
            errors = errors_of(outcome(model, pairs), exact)
        row = {
            **about,
            **way,
            "second_over_first": statistics.median(ratios.tolist()),
            "median": {key: statistics.median(values) for key, values in errors.items()},
            "maximum": {key: max(values) for key, values in errors.items()},
        }
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


Way = tuple[dict[str, Any], tuple[dict[str, Any], Callable[[], Any]]]
"""A way has a description, and the choices and the context in which a model is computed."""


@contextmanager
def unchanged() -> Iterator[None]:
    """Patch nothing."""
    yield


def ways_to_compute(*, compiled: bool) -> list[Way]:
    """Return the strategies and precisions to compare."""
    found: list[Way] = []
    for strategy in STRATEGIES:
        arguments: dict[str, Any] = {"strategy": strategy}
        for precision in PRECISIONS:
            name = {"states": "differences", "strategy": strategy, "precision": precision}
            half = {"half": True} if precision == "bfloat16" else {}
            if precision == "tf32" and strategy != STRATEGIES[0]:
                continue  # the same rule of the same rows
            context = differences_in_tf32 if precision == "tf32" else unchanged
            found.append(({**name, "compiled": False}, ({**arguments, **half}, context)))
            if compiled and precision != "tf32":
                found.append(({**name, "compiled": True}, ({**arguments, **half, "compiled": True}, unchanged)))
    return found


def main() -> None:
    """Measure both cells, untrained and trained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="JSON")
    parser.add_argument("--raw", type=Path, metavar="FOLDER", help="public networks")
    parser.add_argument("--pairs", type=int, default=5, metavar="N", help="of genes, 5 or more for the table")
    parser.add_argument("--layers", type=int, default=3, metavar="L")
    parser.add_argument("--scale", type=float, default=1.0, help="of the generated cell graph")
    parser.add_argument("--compile", action="store_true", help="compiled layers as well")
    options = parser.parse_args()
    keep_freed_memory()
    cells = {"generated": generated_cell(scale=options.scale)}
    if options.raw is not None:
        cells["public"] = public_cell(options.raw)
    ways = ways_to_compute(compiled=options.compile)
    command = "python -m benchmarks.precision OUT" + (" --raw FOLDER" if options.raw else "")
    command += " --compile" if options.compile else ""
    rows: list[dict[str, Any]] = []
    content: dict[str, Any] = {"environment": environment(command), "training": TRAINING, "rows": rows}
    earlier = json.loads(options.out.read_text()) if options.out.exists() else {}
    if "before" in earlier:
        content["before"] = earlier["before"]
    for name, cell in cells.items():
        model = make_model(cell, options.layers)
        genes = len(cell.genes)
        drawn = random.Random(0).sample(range(genes), 2 * options.pairs)
        pairs = [sorted(drawn[k : k + 2]) for k in range(0, len(drawn), 2)]
        about = {"cell": name, "genes": genes, "edges": cell.num_edges, "layers": options.layers, "hidden": 64}
        about |= {"pairs": len(pairs), "parameters": sum(p.numel() for p in model.parameters())}
        for trained in (False, True):
            if trained:
                model.choose(Choices("difference"))
                train(model)
            rows += measure(model, {**about, "trained": trained}, pairs, ways)
            write_json(options.out, content)


if __name__ == "__main__":
    main()
