"""Check that all methods compute the same, before any is timed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.cells import generated_cell
from benchmarks.methods import Method, MethodSpec, UnsupportedError
from benchmarks.workload import Workload, hub_workload
from dglcell.errors import MissingDependencyError
from dglcell.machine.devices import release

TOLERANCE = 1e-10
FLOOR = 0.1
"""Gradients below this share of the largest one are compared with it instead of with themselves. Those of the
pooling's gate are differences of large sums that nearly cancel, and are zero but for rounding where a bias is one that
all strains and the wild type share."""

SMALL_SCALE = 0.02

log = logging.getLogger("dglcell")


@dataclass(frozen=True)
class Agreement:
    """This records that methods agree.

    Attributes:
        largest_difference: largest relative difference of all predictions and gradients.
        faults: compiled methods that fail or differ, and how: their compiler is to blame, not this package.
    """

    largest_difference: float
    faults: dict[str, str]


def check_methods(workloads: Sequence[Workload], specs: Sequence[MethodSpec], device: str) -> Agreement:
    """Compare predictions and all gradients of all methods in float64, on a small generated cell and on other cells.

    Args:
        workloads: little work on the cell graph that will be timed, one for each convolution.
        specs: methods that are compared.
        device: device on which they run.

    Raises:
        RuntimeError: two methods differ; the message names both and the parameter.
    """
    plain = [spec for spec in specs if spec.same_predictions and not spec.compiled]
    small = generated_cell(scale=SMALL_SCALE)
    worst, faults = 0.0, {}
    for workload in workloads:
        little = hub_workload(small, workload.config.conv)
        for work in (little, workload):
            worst = max(worst, check_agreement(work, plain, device))
            for spec in specs:
                if spec.compiled and spec.same_predictions:
                    try:
                        worst = max(worst, check_agreement(work, [*plain[:1], spec], device))
                    except RuntimeError as error:
                        faults[spec.name] = str(error).strip().splitlines()[0]
    log.info("predictions and gradients agree: largest relative difference %.1e in float64", worst)
    return Agreement(worst, faults)


def check_agreement(workload: Workload, specs: Sequence[MethodSpec], device: str) -> float:
    """Compare every method with the first one that runs here.

    Returns:
        The largest relative difference.

    Raises:
        RuntimeError: this difference is above ``TOLERANCE``.
    """
    workload = workload.double().to(device)
    reference: tuple[str, dict[str, Tensor]] | None = None
    worst = 0.0
    for spec in specs:
        try:
            found = _results(spec.build(workload, device).double(), workload)
        except (MissingDependencyError, UnsupportedError):
            # Reported as such where it would be timed.
            continue
        finally:
            release(device)
        if reference is None:
            reference = spec.name, found
        worst = max(worst, _compare(reference, (spec.name, found)))
    return worst


def _results(method: Method, workload: Workload) -> dict[str, Tensor]:
    """Return predictions, and gradients by parameter name."""
    weights = method.weights
    assert weights is not None
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        # Fixed input features are parameters without gradients, and all methods share them.
        for parameter in (each for each in weights.parameters() if each.requires_grad):
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.1 * noise.to(parameter.device))
    predictions = method(workload.genotypes)
    torch.nn.functional.mse_loss(predictions, workload.targets).backward()
    gradients = {n: p.grad for n, p in weights.named_parameters() if p.grad is not None}
    return {"predictions": predictions.detach(), **gradients}


def _compare(one: tuple[str, dict[str, Tensor]], other: tuple[str, dict[str, Tensor]]) -> float:
    (first, expected), (second, found) = one, other
    if set(expected) != set(found):
        raise RuntimeError(
            f"{second} and {first} disagree on which parameters have a gradient: {set(expected) ^ set(found)}"
        )
    largest = max(float(g.abs().max()) for name, g in expected.items() if name != "predictions")
    worst = 0.0
    for name, value in expected.items():
        scale = float(value.abs().max())
        if name != "predictions":
            scale = max(scale, FLOOR * largest)
        difference = float((found[name] - value).abs().max()) / scale
        if not difference <= TOLERANCE:
            what = "predictions differ" if name == "predictions" else f"the gradient of `{name}` differs"
            raise RuntimeError(f"{second} and {first} disagree: {what} by {difference:.1e}, more than {TOLERANCE}")
        worst = max(worst, difference)
    return worst
