"""What losses that compare the strains of a batch with each other have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from dglcell.errors import ConfigError
from dglcell.losses.schedules import TEMPERATURE_SCHEDULES
from dglcell.losses.weighted import WeightedConfig


@dataclass
class CoupledConfig(WeightedConfig, ABC):
    """Squared error, a distance between distributions, and supervised contrast of embeddings.

    A term of weight 0 is left out, and is not recorded.
    """

    mse: float = 1.0  # weight of the squared error
    supcr: float = 0.001  # weight of the supervised contrast; needs a model with embeddings
    temperature: float = 0.1  # of the contrast, in the first epoch
    temperature_final: float = 0.1  # where a schedule leads
    temperature_schedule: str = "none"  # none | exponential | cosine, from one to the other over all epochs

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """
        super().validate()
        for key in ("mse", self.distance_key, "supcr"):
            if not 0 <= getattr(self, key) < math.inf:
                raise ConfigError(f"`loss.{key}` is no weight", got=getattr(self, key), expected="0 or more")
        if self.mse == 0 and getattr(self, self.distance_key) == 0:
            raise ConfigError(
                "`loss` leaves the predictions without any term",
                got=f"`loss.mse: 0`, `loss.{self.distance_key}: 0`",
                do="give one of them a weight; `loss.supcr` trains embeddings only",
            )
        for key in ("temperature", "temperature_final"):
            if not 0 < getattr(self, key) < math.inf:
                raise ConfigError(f"`loss.{key}` must be positive", got=getattr(self, key))
        if self.temperature_schedule not in TEMPERATURE_SCHEDULES:
            raise ConfigError(
                "`loss.temperature_schedule` is unknown",
                got=self.temperature_schedule,
                expected=", ".join(TEMPERATURE_SCHEDULES),
            )

    def needs(self) -> frozenset[str]:
        """See ``LossConfig.needs``."""
        return frozenset({"embedding"} if self.supcr > 0 else ())

    @property
    @abstractmethod
    def distance_key(self) -> str:
        """Key of the weight of the distance between distributions."""


@dataclass
class BufferedConfig(CoupledConfig):
    """The same over more strains than a batch has."""

    buffer_size: int = 256  # strains of earlier batches that are compared as well, without gradient; 0 for none
    min_samples: int | None = None  # compare once so many strains were seen in training; buffer_size where null
    adaptive: bool = True  # few buffered strains in early epochs, more later; the whole buffer always where false
    adaptive_warmup: int | None = None  # epochs of the slow start; a tenth of all where null
    adaptive_stable: int | None = None  # epoch from which on it stays; half of all where null

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """
        super().validate()
        for key in ("buffer_size", "min_samples", "adaptive_warmup", "adaptive_stable"):
            number = getattr(self, key)
            if number is not None and number < 0:
                raise ConfigError(f"`loss.{key}` is too small", got=number, expected="0 or more")
        if self.min_samples is not None and self.min_samples > self.buffer_size:
            raise ConfigError(
                "`loss.min_samples` waits for more strains than are kept",
                got=self.min_samples,
                expected=f"at most `loss.buffer_size: {self.buffer_size}`",
            )
        warmup, stable = self.adaptive_warmup, self.adaptive_stable
        if warmup is not None and stable is not None and stable < warmup:
            raise ConfigError(
                "`loss.adaptive_stable` comes before the end of `loss.adaptive_warmup`",
                got=stable,
                expected=f"{warmup} or more",
            )

    @property
    def enough(self) -> int:
        """`min_samples`, or what it follows."""
        return self.buffer_size if self.min_samples is None else self.min_samples
