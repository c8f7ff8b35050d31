"""Define the base class of a user's own source of strains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dglcell.checks import check_values
from dglcell.data.strains import Strains


@dataclass
class SourceOptions:
    """A source with options derives its own ``Config`` from this class, which says what `data.source.options` may
    contain.
    """

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: a value is wrong; the message names the key.
        """
        check_values(self, "data.source.options")


class Source(ABC):
    """A user derives a source of strains from this class, and names it by `data.source.name: MODULE:CLASS`.

    The store of a source is refused once the file of this class, or one of its ``files``, has changed.

    Args:
        config: an instance of the class's ``Config``.

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
        """Return the files that strains are read from."""
        return []
