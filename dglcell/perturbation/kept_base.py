"""Rows of a base strain that are computed once for many batches, as long as no weight changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class KeptRows:
    """Base rows of a sum of row-wise functions.

    Attributes:
        total: [N, H] the sum; None until it is computed.
        of_part: [N, H] of every part.
    """

    total: Tensor | None = None
    of_part: dict[int, Tensor] = field(default_factory=dict)


class KeptBase:
    """What was computed of the wild type, or of another strain that is the base of several batches.

    Rows are found by how they came about, whatever the strains of a batch.
    """

    def __init__(self) -> None:
        self._beside: tuple[tuple[int, ...], KeptBase] | None = None
        self._numbers: dict[Hashable, int] = {}
        self._tensors: dict[int, Tensor] = {}
        self._rows: dict[int, KeptRows] = {}

    def origin(self, *step: Hashable) -> Origin:
        """The origin that these steps lead to."""
        return Origin(self, self._numbers.setdefault(step, len(self._numbers)))

    def once(self, origin: Origin, make: Callable[[], Tensor]) -> Tensor:
        """The tensor of an origin, made the first time."""
        if origin.number not in self._tensors:
            self._tensors[origin.number] = make()
        return self._tensors[origin.number]

    def of_strain(self, genes: tuple[int, ...]) -> KeptBase:
        """The same of the strain that deletes these genes; what was kept of another is given up."""
        if self._beside is None or self._beside[0] != genes:
            self._beside = genes, KeptBase()
        return self._beside[1]

    def rows(self, origin: Origin) -> KeptRows:
        """The rows of an origin, empty the first time."""
        return self._rows.setdefault(origin.number, KeptRows())


@dataclass(frozen=True)
class Origin:
    """How base rows came about: the same for two batches if they were computed alike from the same weights.

    Attributes:
        kept: where they are.
        number: of the steps.
    """

    kept: KeptBase
    number: int

    def then(self, *step: Hashable) -> Origin:
        """Of what a step makes of these rows."""
        return self.kept.origin(self.number, *step)

    def once(self, make: Callable[[], Tensor]) -> Tensor:
        """See ``KeptBase.once``."""
        return self.kept.once(self, make)
