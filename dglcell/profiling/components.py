"""The parts that a training step's time is divided into."""

from __future__ import annotations

from dglcell.profiling.spans import STEP

COMPONENTS = {
    "data": "waiting for the next batch and gathering it on the device",
    "perturbation": "from deleted genes to the strains' graphs",
    "aggregation": "along the edges of each relation, with the projections of attention",
    "updates": "row-wise networks: embeddings, convolutions' MLPs, norms, combination of relations",
    "pooling": "from node states to strains",
    "heads": "from pooled states and deleted genes to predictions",
    "loss": "with the reconstructions that it reads",
    "backward": "gradients, with what is computed once more for them",
    "optimiser": "zeroing and clipping gradients, the optimiser's step, the schedule",
    "communication": "waiting for other processes",
    "other": "the model's and the training loop's own code",
}
"""Component → what it is. Names of spans are these, or `component/part`."""

REST = "other/loop"

TORCH_PREFIXES = {
    "Optimizer.step#": "optimiser",
    "Optimizer.zero_grad#": "optimiser",
    "enumerate(DataLoader)#": "data",
    "autograd::engine::evaluate_function": "backward",
    "nccl:": "communication",
    "gloo:": "communication",
    "c10d::": "communication",
}
"""What PyTorch's own profiler calls some of them. Its `ProfilerStep#…` is the step, and part of no component."""

TORCH_STEP = "ProfilerStep#"


def is_step(name: str) -> bool:
    """Whether an event of a trace is a whole step."""
    return name == STEP or name.startswith(TORCH_STEP)


def component_of(name: str) -> str | None:
    """The component, with its part, that an event of a trace is; None for whatever surrounds it."""
    if name.partition("/")[0] in COMPONENTS:
        return name
    return next((component for prefix, component in TORCH_PREFIXES.items() if name.startswith(prefix)), None)


def whole(name: str) -> str:
    """The component of `component/part`."""
    return name.partition("/")[0]
