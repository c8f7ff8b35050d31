"""Files of R data, as ``save`` of R writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class NamedMatrix:
    """A square matrix whose rows and columns have the same names, as R holds it."""

    scores: np.ndarray
    names: Sequence[str]


def write_rda(path: Path, content: dict[str, Any]) -> None:
    """As ``save(…, file=path)`` of R writes variables; skips where nothing can write it."""
    import rdata
    from rdata.conversion.to_r import DEFAULT_CLASS_MAP, build_r_object
    from rdata.parser import RObjectType

    def matrix(value: NamedMatrix, converter: Any) -> Any:
        names = np.array(value.names)
        shape = np.array(value.scores.shape, dtype=np.int32)
        attributes = converter.convert_to_r_attributes({"dim": shape, "dimnames": [names, names]})
        return build_r_object(RObjectType.REAL, value=value.scores.ravel("F"), attributes=attributes)

    path.parent.mkdir(parents=True, exist_ok=True)
    rdata.write_rda(path, content, constructor_dict={**DEFAULT_CLASS_MAP, NamedMatrix: matrix})
