"""Hold null models as bytes without code: JSON and arrays."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dglcell.baselines.beyond_deletions import Condition, Conditions
from dglcell.baselines.composition import Multiplicative, SmallestSubset
from dglcell.baselines.curves import Curve, GeneCurves
from dglcell.baselines.fit import MeanOfTwo, NullModel
from dglcell.baselines.kernel_ridge import KernelRidge, PairKernel, PairMatrix
from dglcell.baselines.low_rank import LowRankProfiles, RidgeAndLowRank
from dglcell.baselines.reactions import LostSetKernel, ReactionKernelRidge, Reactions, UntrainedBound
from dglcell.baselines.simple import AdditiveRidge, QueryPairMean, SameStrain, Shrunk, TrainingMean
from dglcell.baselines.strain_kernel import StrainKernel, StrainKernelRidge
from dglcell.data.columns import CONDITION, Column
from dglcell.data.strains import Strains
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import CATALYSES

CLASSES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        AdditiveRidge,
        Condition,
        Conditions,
        Curve,
        GeneCurves,
        KernelRidge,
        LostSetKernel,
        LowRankProfiles,
        MeanOfTwo,
        Multiplicative,
        PairKernel,
        PairMatrix,
        QueryPairMean,
        ReactionKernelRidge,
        RidgeAndLowRank,
        SameStrain,
        Shrunk,
        SmallestSubset,
        StrainKernel,
        StrainKernelRidge,
        TrainingMean,
        UntrainedBound,
    )
}
"""The bytes may hold these classes; everything in them is made of numbers, texts and arrays."""


@dataclass(frozen=True)
class PackedNulls:
    """Hold a null model for each phenotype; they are given strains as integers.

    Attributes:
        models: T of them.
        genes: names of those of the cell graph.
    """

    models: Sequence[NullModel]
    genes: tuple[str, ...]

    def __call__(
        self,
        genes: NDArray[np.int64],
        offsets: NDArray[np.int64],
        strengths: NDArray[np.floating] | None = None,
        conditions: Mapping[tuple[str, tuple[str, ...]], NDArray[np.floating]] | None = None,
    ) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S, T].

        Args:
            genes: [P] changed genes of the strains, one after the other.
            offsets: [S + 1] where those of each strain begin.
            strengths: [P] what is left of them; None where all are deleted.
            conditions: name and categories of each condition → [S] its values.
        """
        columns = {Column(CONDITION, *label): values for label, values in (conditions or {}).items()}
        strains = Strains(self.genes, genes, offsets, columns, strengths=strengths)
        return np.stack([model.predict(strains) for model in self.models], axis=1)

    def pack(self) -> bytes:
        """Return bytes with all that is needed besides the cell graph, without code."""
        arrays: list[NDArray[Any]] = []
        text = json.dumps([_plain(model, arrays) for model in self.models])
        file = io.BytesIO()
        np.savez(file, np.array(text), *arrays)
        return file.getvalue()

    @classmethod
    def unpack(cls, packed: bytes, cell: CellGraph) -> Self:
        """Restore null models from the bytes of ``pack``.

        Raises:
            ValueError: the bytes are no null models.
        """
        try:
            with np.load(io.BytesIO(packed), allow_pickle=False) as file:
                text, *arrays = (file[f"arr_{i}"] for i in range(len(file.files)))
            written = json.loads(str(text))
            reactions = Reactions(cell) if CATALYSES in cell.relations else None
            models = [_restored(value, _Known(arrays, reactions, cell.genes.names)) for value in written]
        except Exception as error:  # of a damaged archive there are a dozen kinds
            raise ValueError("its null models are damaged") from error
        return cls(models, cell.genes.names)


def _plain(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Convert a value to what JSON can hold; arrays are appended to ``arrays``, and their index stands for them."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if sparse.issparse(value):
        matrix = sparse.csr_array(value)
        parts = [_plain(part, arrays) for part in (matrix.data, matrix.indices, matrix.indptr)]
        return {"sparse": parts, "shape": list(matrix.shape)}
    if isinstance(value, Reactions):
        return {"reactions": True}
    if isinstance(value, Strains):
        parts = [_plain(part, arrays) for part in (value.targets, value.offsets, value.strengths)]
        columns = [(c.label, _plain(x, arrays)) for c, x in value.columns.items() if c.kind == CONDITION]
        return {"strains": parts, "columns": columns}
    if isinstance(value, dict):
        return {"dict": [(key, _plain(item, arrays)) for key, item in value.items()]}
    if dataclasses.is_dataclass(value):
        fields = {part.name: _plain(getattr(value, part.name), arrays) for part in dataclasses.fields(value)}
        return {"class": type(value).__name__, "fields": fields}
    if isinstance(value, tuple):
        return {"tuple": [_plain(item, arrays) for item in value]}
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True)
class _Known:
    """Hold what the result of ``_plain`` refers to: arrays, the reactions of the cell graph, and names of its genes."""

    arrays: Sequence[NDArray[Any]]
    reactions: Reactions | None
    genes: tuple[str, ...]


def _restored(value: Any, known: _Known) -> Any:
    """Restore a value from the result of ``_plain``."""
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return known.arrays[value["array"]]
    if "sparse" in value:
        parts = tuple(_restored(part, known) for part in value["sparse"])
        return sparse.csr_array(parts, shape=tuple(value["shape"]))
    if "reactions" in value:
        return known.reactions
    if "strains" in value:
        targets, offsets, strengths = (_restored(part, known) for part in value["strains"])
        columns = {Column.of_label(label): _restored(part, known) for label, part in value["columns"]}
        return Strains(known.genes, targets, offsets, columns, strengths=strengths)
    if "dict" in value:
        return {key: _restored(item, known) for key, item in value["dict"]}
    if "tuple" in value:
        return tuple(_restored(item, known) for item in value["tuple"])
    restored: Any = object.__new__(CLASSES[value["class"]])
    for name, part in value["fields"].items():
        object.__setattr__(restored, name, _restored(part, known))
    return restored
