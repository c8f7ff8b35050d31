"""Configuration of what happens to rows that do not agree."""

from __future__ import annotations

from dataclasses import dataclass

from dglcell.errors import ConfigError

CONFLICT_POLICIES = ("mean", "drop", "refuse")


@dataclass
class ConflictConfig:
    """Rows of the same genes that contradict each other, in phenotypes with p-values. They are counted in any case.

    Two rows contradict each other if both are significant and of opposite sign, or if they differ by more than
    ``difference``. The default is the distance between the cut-offs −0.08 and 0.08, at which Costanzo et al. (2016)
    call an interaction negative or positive.

    Attributes:
        policy: ``mean`` averages them like any other rows, ``drop`` leaves the strain out, ``refuse`` stops.
        p: rows with a smaller p-value are significant.
        difference: largest difference that is no contradiction; null for any.
    """

    policy: str = "mean"
    p: float = 0.05
    difference: float | None = 0.16

    def validate(self, key: str) -> None:
        """Check the values.

        Args:
            key: where this section is, for the message.

        Raises:
            ConfigError: a value is out of range.
        """
        if self.policy not in CONFLICT_POLICIES:
            raise ConfigError(
                f"`{key}.policy` has an unknown value", got=repr(self.policy), expected=" or ".join(CONFLICT_POLICIES)
            )
        if not 0 < self.p <= 1:
            raise ConfigError(f"`{key}.p` is no p-value", got=self.p, expected="above 0, at most 1")
        if self.difference is not None and self.difference <= 0:
            raise ConfigError(f"`{key}.difference` must be positive", got=self.difference, do="use null for any")
