"""Choose strategy, kernels, precision and compiled layers for ``auto`` by measurements before training."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import dglcell
from dglcell.config.experiment import OLD_PRECISIONS
from dglcell.errors import CheckpointError
from dglcell.files.atomic import canonical_hash, user_cache, write_json
from dglcell.files.untrusted import UnreadableError, read_json
from dglcell.graph.resident import ResidentRelation
from dglcell.kernels.spmm import UNORDERED, kernels_on, spmm
from dglcell.machine.processor import cores, multiplies_bfloat16, processor_name
from dglcell.models.encoder import PerturbedModel
from dglcell.nn.hetero_layer import HeteroLayer, RelationConv
from dglcell.perturbation.choose.autotuned import (
    Autotuned,
    Rates,
    Share,
    measure_rates,
    predict_product,
    survey,
)
from dglcell.perturbation.choose.proof import MUST_PROVE, Proofs, this_machine
from dglcell.perturbation.execution import compiler_works
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.row_index import RowIndex
from dglcell.perturbation.sent import Kept
from dglcell.perturbation.states import DifferenceStates, Execution
from dglcell.perturbation.strategies.difference import Difference
from dglcell.perturbation.strategies.node_mask import NodeMask

log = logging.getLogger("dglcell")

ROWS_WORTH_COMPILING = 3e8
"""Compiling pays off from so many rows of a run, summed over strains and relations: on two cores it took half a minute
(27 s), and then saved 0.35 s for each million rows 32 wide."""


def lightning_precision(name: str) -> str:
    """Return Lightning's name for the precision of weights, bases and losses."""
    return "64-true" if OLD_PRECISIONS.get(name, name) == "64-true" else "32-true"


def plain_precision(name: str) -> str:
    """Return the precision that a name stands for, and warn if the name is one that other programs use."""
    plain = OLD_PRECISIONS.get(name, name)
    if plain != name:
        log.info("`trainer.precision: %s` stands for `%s` here: only differences are in half precision", name, plain)
    return plain


def resolve_execution(
    autotuned: Autotuned, precision: str, compiled: str, device: torch.device, rows: float, *, pinned: bool = False
) -> Autotuned:
    """Add to the choices of ``auto`` the precision of differences and whether layers are compiled.

    Args:
        precision: value of ``trainer.precision``.
        compiled: value of ``model.compile``: auto, true or false.
        rows: number of rows that the run computes, summed over strains and relations.
        pinned: whether ``auto`` keeps the choices in ``autotuned``, which another run made.
    """
    name = plain_precision(precision)
    wanted = autotuned.compile if pinned else rows >= ROWS_WORTH_COMPILING
    compile_layers = (wanted if compiled == "auto" else compiled == "true") and compiler_works(device.type)
    fast = autotuned.differences == "bfloat16" if pinned else compile_layers and multiplies_bfloat16_fast(device)
    half = fast if name == "auto" else name == "bf16"
    log.info(
        "differences in %s (`trainer.precision: %s`), layers %s (`model.compile: %s`)",
        "bfloat16" if half else "the base's precision",
        precision,
        "compiled" if compile_layers else "not compiled",
        compiled,
    )
    return autotuned.for_layers(compiled=compile_layers, half=half)


def multiplies_bfloat16_fast(device: torch.device) -> bool:
    """Return whether a device has instructions for products of bfloat16."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return multiplies_bfloat16()


SMALL_STEP = 1 << 30
"""Below so many additions of a layer's products, E · B · H, a step is too short for choices to matter."""

WORTH_TIMING = 6.0
"""Kernels predicted to take this much longer than the best are not timed."""

SECONDS = 20.0
"""A measurement ends after this time; choices that are not timed by then keep their defaults."""

PROBE_STRAINS = 8
"""Listed and dense rows are timed against each other with so many strains."""


@dataclass(frozen=True)
class Autotuning:
    """This holds the choices of ``auto`` and the reasons for them.

    Attributes:
        autotuned: the choices that `auto` makes.
        reasons: sizes, measured seconds and expected shares, as plain containers.
    """

    autotuned: Autotuned
    reasons: dict[str, Any]


def autotuned_for(
    model: PerturbedModel,
    genotypes: GenotypeBatch,
    differences: torch.dtype | None = None,
    *,
    deterministic: bool = False,
) -> Autotuning:
    """Find, or look up, the choices of `auto` for a model and batches like this one.

    Args:
        model: the model on its device; its weights are not changed.
        genotypes: a typical batch, on the same device.
        differences: type in which a step computes differences; None for the type of the weights.
        deterministic: whether kernels whose sums differ from call to call are left out.
    """
    device = genotypes.genes.device
    if "auto" not in (model.config.strategy, model.config.kernel):
        return Autotuning(Autotuned.default(device.type), {"why": "strategy and kernel are given"})
    edges = max((sum(model.cell[r].num_edges for r in layer) for layer in model.encoder.plan), default=0)
    if edges * genotypes.num_strains * model.config.hidden < SMALL_STEP:
        return Autotuning(Autotuned.default(device.type), {"why": "a step is too short for a measurement to pay"})
    about = {**describe(model, genotypes, differences), "deterministic": deterministic}
    cached = user_cache("autotuned") / f"{canonical_hash(about)[:16]}.json"
    try:
        if cached.is_file():
            found = read_autotuned(cached)
            log.info("strategy and kernels as found before (%s)", cached)
            return found
    except (CheckpointError, OSError) as error:
        log.warning("measuring anew: %s", error)
    found = autotune(model, genotypes, about, differences)
    try:
        write_autotuned(cached, found)
    except OSError as error:
        log.warning("what was measured is not kept for other runs: %s", error)
    return found


def describe(model: PerturbedModel, genotypes: GenotypeBatch, differences: torch.dtype | None = None) -> dict[str, Any]:
    """Describe what the choices depend on: machine, versions, sizes of the cell graph and of the model."""
    device = genotypes.genes.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{processor_name()} x {cores()}"
    config = model.config
    relations = [model.cell[r] for r in model.cell.relations]
    sizes = [["/".join(e.relation), e.num_src, e.num_dst, e.num_edges, e.weight is not None] for e in relations]
    return {
        "device": f"{device.type}: {name}",
        "threads": torch.get_num_threads(),
        "versions": [dglcell.__version__, torch.__version__, this_machine("cpu")["triton"]],
        "relations": sizes,
        "model": [config.conv, config.hidden, config.layers, config.gin_layers, config.norm, config.kernel],
        "strains": genotypes.num_strains,
        "dtype": [str(next(model.parameters()).dtype), str(differences)],
    }


def autotune(
    model: PerturbedModel, genotypes: GenotypeBatch, about: dict[str, Any], differences: torch.dtype | None = None
) -> Autotuning:
    """Time the options worth timing, on a GPU only those proven correct, and log each choice with its reason."""
    started, device = time.perf_counter(), genotypes.genes.device
    dtype = next(model.parameters()).dtype
    rates = measure_rates(device, differences or dtype)
    proofs = Proofs(device) if device.type in MUST_PROVE else None
    used = dict.fromkeys(r for layer in model.encoder.plan for r in layer)
    H, B = model.config.hidden, genotypes.num_strains
    kernels: dict[str, dict[int, str]] = {}
    seconds: dict[str, dict[str, float]] = {}
    for relation in used:
        name = "/".join(relation)
        for strains, type_ in ((1, dtype), (B, differences or dtype)):
            if time.perf_counter() - started > SECONDS or model.config.kernel != "auto":
                break
            columns = strains * H
            left_out = UNORDERED.get(device.type, ()) if about.get("deterministic") else ()
            timed = time_kernels(model.cell[relation], (strains, H), device, type_, rates, proofs, left_out)
            seconds[f"{name} {columns}"] = timed
            if timed:
                kernels.setdefault(name, {})[columns] = min(timed, key=timed.__getitem__)
    listed, dense = time_rows(model, device, dtype)
    shares = survey(model.cell, model.encoder.plan, genotypes)
    dense_share = min(1.0, max(0.3, dense / listed))
    strategy = choose_strategy(shares, dense_share) if device.type == "cpu" else "node_mask"
    autotuned = Autotuned(strategy, dense_share, kernels)
    lines = [explain(layer, autotuned) for layer in shares]
    for number, line in enumerate(lines, start=1):
        log.info("layer %d: %s", number, "; ".join(f"{name} {how}" for name, how in line.items()))
    reasons = {
        "about": about,
        "rates": asdict(rates),
        "product_seconds": seconds,
        "row_seconds": {"listed": listed, "dense": dense},
        "layers": lines,
        "autotuning_seconds": time.perf_counter() - started,
    }
    log.info("strategy %s, found in %.1f s", strategy, reasons["autotuning_seconds"])
    return Autotuning(autotuned, reasons)


def explain(layer: dict[tuple[str, str, str], Share], autotuned: Autotuned) -> dict[str, str]:
    """Return for each relation how it is computed and why."""
    lines = {}
    for relation, share in layer.items():
        listed = autotuned.strategy == "difference" and share.rows <= autotuned.dense_share
        kernel = ", ".join(f"{k} at {c} columns" for c, k in autotuned.kernels.get("/".join(relation), {}).items())
        lines["/".join(relation)] = (
            f"{'changed rows' if listed else 'dense'} ({share.rows:.0%} of rows, {share.edges:.0%} of edges change; "
            f"dense from {autotuned.dense_share:.0%}){'; ' + kernel if kernel else ''}"
        )
    return lines


def choose_strategy(shares: Sequence[dict[tuple[str, str, str], Share]], dense_share: float) -> str:
    """Return `difference` if its rows, each at the cost of a listed row, are cheaper than all rows."""
    everything = sum(share.total_rows for layer in shares for share in layer.values())
    cost = sum(min(share.rows / dense_share, 1.0) * share.total_rows for layer in shares for share in layer.values())
    return "difference" if cost < everything else "node_mask"


def time_kernels(
    edges: ResidentRelation,
    shape: tuple[int, int],
    device: torch.device,
    dtype: torch.dtype,
    rates: Rates,
    proofs: Proofs | None = None,
    left_out: Collection[str] = (),
) -> dict[str, float]:
    """Return the seconds of a product with its gradient for every kernel that may be the fastest.

    Args:
        shape: number of strains, and number of columns of each.
        proofs: the proofs that kernels have to pass first; None where they need none.
    """
    columns = shape[0] * shape[1]
    kernels = [kernel for kernel in kernels_on(device.type) if kernel not in left_out]
    predicted = {k: predict_product(k, edges, columns, dtype.itemsize, rates) for k in kernels}
    limit = WORTH_TIMING * min(predicted.values())
    worth = [k for k, expected in predicted.items() if expected <= limit]
    if proofs is not None:
        worth = [k for k in worth if proofs.holds(k, edges, shape, dtype, device)]
    x = torch.ones(edges.num_src, columns, device=device, dtype=dtype, requires_grad=True)

    def once(kernel: str) -> float:
        started = time.perf_counter()
        y = spmm(edges, x, kernel=kernel)
        if y.requires_grad:
            torch.autograd.grad(y, x, torch.ones_like(y))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    timed = {}
    for kernel in worth:
        once(kernel)  # compiles, and prepares both forms of the matrix
        timed[kernel] = min(once(kernel), once(kernel))
    return timed


def time_rows(model: PerturbedModel, device: torch.device, dtype: torch.dtype) -> tuple[float, float]:
    """Return the seconds of a relation with its gradient per row: in a list of half of all rows, and in dense states.

    The relation is one of the last layer with a typical number of edges. The time includes its sums and the update of
    the rows that receive them.
    """
    layer = model.encoder.layers[-1]
    assert isinstance(layer, HeteroLayer)
    by_edges = sorted(range(len(layer.relations)), key=lambda i: model.cell[layer.relations[i]].num_edges)
    number = by_edges[len(by_edges) // 2]
    conv, (start, _, end) = layer.convs[number], layer.relations[number]
    assert isinstance(conv, RelationConv)
    sizes = {node_type: model.cell.num_nodes[node_type] for node_type in dict.fromkeys((start, end))}
    B, H = PROBE_STRAINS, model.config.hidden
    generator = torch.Generator().manual_seed(0)
    execution = Execution(recompute=False, dense_share=1.0)
    ones = {t: torch.ones(n, B, dtype=torch.bool, device=device) for t, n in model.cell.num_nodes.items()}
    kept = {t: Kept(mask[:, :1], mask) for t, mask in ones.items()}
    masks = {t: torch.rand(n, B, generator=generator) < 0.5 for t, n in sizes.items()}
    index = {t: RowIndex(mask.to(device)) for t, mask in masks.items()}

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, H, generator=generator).to(device, dtype).requires_grad_()

    def seconds(engine: NodeMask, delta: Callable[[str], tuple[Tensor, RowIndex | None]]) -> tuple[float, int]:
        best, rows = float("inf"), 1
        for _ in range(3):
            states = {t: engine.start(random(n)) for t, n in sizes.items()}
            states = {t: known.with_difference(known.base_NH, *delta(t)) for t, known in states.items()}
            started = time.perf_counter()
            received = conv.receive(PerturbedCell(engine, kept), states[start], states[end])
            out = states[end].sum([(conv, [states[end], received]), (None, [states[end]])])
            assert isinstance(out, DifferenceStates)
            assert out.delta is not None
            (out.delta.float().sum() + out.base_NH.sum()).backward()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            best, rows = min(best, time.perf_counter() - started), out.delta.numel() // H
        return best, rows

    always = Difference(model.cell, kept, model.config.kernel, execution)
    listed, rows = seconds(always, lambda t: (random(len(index[t])), index[t]))
    everywhere = NodeMask(model.cell, kept, model.config.kernel, execution)
    dense, every = seconds(everywhere, lambda t: (random(sizes[t], B), None))
    model.zero_grad(set_to_none=True)
    return listed / rows, dense / every


def write_autotuned(path: Path, found: Autotuning) -> None:
    """Write choices and reasons as JSON."""
    write_json(path, {**found.autotuned.to_dict(), "reasons": found.reasons})


def read_autotuned(path: Path) -> Autotuning:
    """Read the choices and reasons that ``write_autotuned`` wrote.

    Raises:
        CheckpointError: the file does not exist, or holds something else.
    """
    if not os.path.lexists(path):
        raise CheckpointError(
            f"'{path}' not found",
            expected="autotuned.json of a run",
            do="set `model.autotuned: null` to have them found",
        )
    try:
        content = read_json(path)
    except UnreadableError as error:
        raise CheckpointError(f"'{path}' is no JSON", got=error, do="set `model.autotuned: null`") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"'{path}' does not hold choices", got=type(content).__name__, expected="an object")
    reasons = content.pop("reasons", {})
    return Autotuning(Autotuned.from_dict(content, str(path)), reasons if isinstance(reasons, dict) else {})
