"""Train graph neural networks over one cell and its many deletion strains."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dglcell.api import Predictor, evaluate, evaluate_on, load, load_cell, train
    from dglcell.data.strains import Strains
    from dglcell.graph.cell_graph import CellGraph
    from dglcell.perturbation.states import States
    from dglcell.perturbation.strains import graphs, perturb

__version__ = "1.0.0"

__all__ = [
    "CellGraph",
    "Predictor",
    "States",
    "Strains",
    "evaluate",
    "evaluate_on",
    "graphs",
    "load",
    "load_cell",
    "perturb",
    "train",
]

# Otherwise DGL's first import on a machine writes a file into the user's home and prints a message.
os.environ["DGLBACKEND"] = "pytorch"

# Threads that wait for others sleep, instead of turning in a loop; torch's OpenMP reads this when it is loaded. On two
# idle cores a training would be up to a fifth faster, and on busy ones up to forty times as slow, because those that
# are waited for would get no core.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_ELSEWHERE = {
    "CellGraph": ("dglcell.graph.cell_graph", "CellGraph"),
    "States": ("dglcell.perturbation.states", "States"),
    "Strains": ("dglcell.data.strains", "Strains"),
    "graphs": ("dglcell.perturbation.strains", "graphs"),
    "perturb": ("dglcell.perturbation.strains", "perturb"),
}
"""This maps public names that are not in ``dglcell.api`` to their module and their name there."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, because torch takes seconds to import."""
    if name == "nn":
        return importlib.import_module("dglcell.nn")
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    module, there = _ELSEWHERE.get(name, ("dglcell.api", name))
    globals()[name] = found = getattr(importlib.import_module(module), there)
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
