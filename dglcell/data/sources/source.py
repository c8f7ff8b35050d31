"""Define the base classes of a user's own source of strains, and of a column that is computed for strains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
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
        """Check values and their combinations."""
        check_values(self, "data.source.options")


class _Own:
    """This is a class of the user's own, made with its options.

    Args:
        config: an instance of the class's ``Config``.

    Attributes:
        Config: what the options may say.
    """

    Config: ClassVar[type[SourceOptions]] = SourceOptions

    def __init__(self, config: Any) -> None:
        self.config = config

    def files(self, raw: str | None) -> list[Path]:
        """Return the files that it reads."""
        return []


class Source(_Own, ABC):
    """A user derives a source of strains from this class, and names it by `data.source.name: MODULE:CLASS`.

    The store of a source is refused once the file of this class, or one of its ``files``, has changed.
    `data.source.options` are its options.
    """

    @abstractmethod
    def load(self, raw: str | None) -> Strains:
        """Read or compute all strains.

        Args:
            raw: folder of raw files, where one is set; see ``dglcell.files.atomic.find_raw``.
        """


@dataclass(frozen=True)
class Work:
    """Say where a simulator works."""

    raw: str | None = None  #: folder of raw files, where one is set; see ``dglcell.files.atomic.find_raw``


class Simulator(_Own, ABC):
    """A user derives from this class a covariate that is computed for strains, named in `data.computed`.

    It is computed once when a store is built, and for new strains when they are predicted. Models and baselines see it
    as they see any covariate.
    """

    @abstractmethod
    def compute(self, strains: Strains, work: Work) -> NDArray[np.float32]:
        """Compute a finite number for each strain, [S], which depends on nothing but the strain and ``config``."""


def shaping(options: Any) -> dict[str, Any]:
    """Return options as plain containers, without those that change no strain."""
    return {name: value for name, value in asdict(options).items() if name != "processes"}
