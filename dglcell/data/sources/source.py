"""What a source of strains of one's own is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dglcell.checks import check_values
from dglcell.data.strains import Strains


@dataclass
class SourceOptions:
    """What `data.source.options` may say; a source with options derives its own ``Config`` from it."""

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """
        check_values(self, "data.source.options")


class Source(ABC):
    """Where strains come from, as a class that `data.source.name: MODULE:CLASS` names.

    The store of a source is refused once the file of this class, or one of its ``files``, has changed.

    Args:
        config: a ``Config``.

    Attributes:
        Config: what `data.source.options` may say.
    """

    Config: ClassVar[type[SourceOptions]] = SourceOptions

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def load(self, raw: str | None) -> Strains:
        """Read or compute all strains.

        Args:
            raw: folder of raw files, where one is set; see ``dglcell.files.atomic.find_raw``.
        """

    def files(self, raw: str | None) -> list[Path]:
        """The files that strains are read from."""
        return []
