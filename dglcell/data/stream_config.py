"""What a configuration can say of a training part that is read from disk as it is needed."""

from __future__ import annotations

from dataclasses import dataclass

from dglcell.errors import ConfigError


@dataclass
class StreamingConfig:
    """Read training strains block by block, for stores larger than memory."""

    window: int = 262_144  # strains that are shuffled together; memory grows with it
    readers: int = 2  # threads that read ahead, a window each

    def validate(self, key: str = "data.streaming") -> None:
        """Raises ConfigError if a value is out of range."""
        for name in ("window", "readers"):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"`{key}.{name}` is too small", got=value, expected="1 or more")
