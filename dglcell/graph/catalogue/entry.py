"""What the catalogue says about a network, a gene set or a metabolic model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dglcell.graph.network_config import NetworkConfig
from dglcell.graph.raw_file import RawFile
from dglcell.graph.vocabulary import GeneSet


@dataclass(frozen=True)
class Origin:
    """Who made something.

    Attributes:
        description: what it holds, in a sentence or two.
        citation: the publication.
        licence: as its publisher states it.
    """

    description: str
    citation: str
    licence: str

    def provenance(self, file: RawFile) -> dict[str, Any]:
        """As plain containers, with the file's address."""
        return {"citation": self.citation, "licence": self.licence, "url": file.url}


@dataclass(frozen=True)
class NetworkSource:
    """A network that an experiment can name.

    Attributes:
        origin: who made it.
        file: where it is.
        table: what its columns mean; everything but its path.
        standard_names: genes bear standard names (``GCN4``), so that the cell needs aliases.
    """

    origin: Origin
    file: RawFile
    table: NetworkConfig
    standard_names: bool = False


@dataclass(frozen=True)
class GeneSetSource:
    """A gene vocabulary with its aliases that an experiment can name.

    Attributes:
        origin: who made it.
        file: where it is.
        read: how its format is read.
    """

    origin: Origin
    file: RawFile
    read: Callable[[Path], GeneSet]


@dataclass(frozen=True)
class ModelSource:
    """A metabolic model that an experiment can name.

    Attributes:
        origin: who made it.
        file: where it is; its extension tells the format.
    """

    origin: Origin
    file: RawFile
