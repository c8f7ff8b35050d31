"""Keep fitted baselines in one file: arrays, and JSON that says which is which. There is no code in it."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dglcell.baselines.problem import NullModel
from dglcell.baselines.reactions import Reactions
from dglcell.files.atomic import atomic_file
from dglcell.files.untrusted import UnreadableError, read_npz
from dglcell.graph.cell_graph import CellGraph


def save_models(path: Path, models: Mapping[str, Mapping[str, NullModel]], about: Mapping[str, Any]) -> None:
    """Write fitted baselines into one file of arrays and JSON, whole or not at all, without code.

    Args:
        models: phenotype → name → the fitted baseline.
        about: what they were fitted to, as plain containers.
    """
    arrays: list[NDArray[Any]] = []
    packed = {
        phenotype: {name: [type(model).__name__, _plain(model, arrays)] for name, model in named.items()}
        for phenotype, named in models.items()
    }
    with atomic_file(path) as partial, open(partial, "wb") as file:
        np.savez(file, np.array(json.dumps({"about": dict(about), "models": packed})), *arrays)


def load_models(path: Path, cell: CellGraph) -> tuple[dict[str, dict[str, NullModel]], dict[str, Any]]:
    """Read what `save_models` wrote: baselines, and what they were fitted to.

    Args:
        cell: the cell graph that they were fitted on.

    Raises:
        UnreadableError: the file is missing, or holds something else.
    """
    found, classes = read_npz(path), {kind.__name__: kind for kind in NullModel.__subclasses__()}
    try:
        text, *arrays = (found[f"arr_{i}"] for i in range(len(found)))
        content, restored = json.loads(str(text)), _Restored(arrays, cell)
        models = {
            phenotype: {name: restored(classes[kind], value) for name, (kind, value) in named.items()}
            for phenotype, named in content["models"].items()
        }
        return models, dict(content["about"])
    except Exception as error:  # of other content there are a dozen kinds
        raise UnreadableError("no fitted baselines") from error


def _plain(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Convert a value to what JSON can hold; arrays are appended to ``arrays``, and their index stands for them."""
    if isinstance(value, np.ndarray):
        place = next((i for i, array in enumerate(arrays) if array is value), len(arrays))  # models share large ones
        if place == len(arrays):
            arrays.append(value)
        return place
    if isinstance(value, sparse.csr_array):
        return [_plain(value.data, arrays), _plain(value.indices, arrays), _plain(value.indptr, arrays), *value.shape]
    if isinstance(value, Reactions):
        return True
    if isinstance(value, tuple):
        return [_plain(item, arrays) for item in value]
    if is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name), arrays) for part in fields(value)}
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True)
class _Restored:
    """Restore values from ``_plain``, each as the type that the annotation of its field names."""

    arrays: list[NDArray[Any]]
    cell: CellGraph

    @cached_property
    def reactions(self) -> Reactions:
        return Reactions(self.cell)

    def __call__(self, kind: Any, value: Any) -> Any:
        origin, of = get_origin(kind), get_args(kind)
        if origin is types.UnionType:  # such as `Conditions | None`
            return None if value is None else self(of[0], value)
        if origin is np.ndarray:
            return self.arrays[value]
        if kind is sparse.csr_array:
            return sparse.csr_array(tuple(self.arrays[place] for place in value[:3]), shape=tuple(value[3:]))
        if kind is Reactions:
            return self.reactions
        if origin is tuple:
            return tuple(self(of[0], item) for item in value)
        if is_dataclass(kind):
            hints, made = get_type_hints(kind), object.__new__(kind)  # type: ignore[arg-type]
            for part in fields(kind):
                object.__setattr__(made, part.name, self(hints[part.name], value[part.name]))
            return made
        if type(value) is not kind:
            raise TypeError(f"{value!r} is no {kind.__name__}")
        return value
