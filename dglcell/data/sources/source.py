"""Define the base classes of a user's own source of strains, and of a column that is computed for strains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True)
class Work:
    """Say where a simulator works."""

    raw: str | None  #: folder of raw files, where one is set; see ``dglcell.files.atomic.find_raw``
    #: folder that what was computed is kept in, so that it is computed once; several processes may write there
    cache: Path


class Simulator(ABC):
    """A user derives from this class a covariate that is computed for strains, named in `data.computed`.

    It is computed once when a store is built, and for new strains when they are predicted. Models and baselines see it
    as they see any covariate.

    Args:
        config: an instance of the class's ``Config``.

    Attributes:
        Config: what ``options`` beside the class may say.
    """

    Config: ClassVar[type[SourceOptions]] = SourceOptions

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def compute(self, strains: Strains, work: Work) -> NDArray[np.float32]:
        """Compute a finite number for each strain, [S], which depends on nothing but the strain and ``config``."""

    def files(self, raw: str | None) -> list[Path]:
        """Return the files that it reads."""
        return []
