"""What the configurations of all models have in common."""

from __future__ import annotations

from dataclasses import dataclass, field

from dglcell.errors import ConfigError
from dglcell.kernels.spmm import KERNELS


@dataclass
class ModelConfig:
    """A model; each kind adds its own keys."""

    name: str = ""  # which model, a key of `dglcell.models.build.MODELS`
    kernel: str = "auto"  # how sparse products are computed: auto | tiled | dgl | csr | dense | reference
    features: dict[str, str] = field(default_factory=dict)  # node type → table of fixed input features

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """
        if self.kernel not in ("auto", *KERNELS):
            raise ConfigError("`model.kernel` is unknown", got=self.kernel, expected=", ".join(("auto", *KERNELS)))

    def gives(self) -> frozenset[str]:
        """What its predictions hold beside phenotypes: ``embedding``, and the names of auxiliary scalars."""
        return frozenset()

    def asks(self) -> dict[str, str]:
        """What the loss must read of ``gives``, as nothing else trains it: name → what to set where it does not."""
        return {}

    def is_calibrated(self) -> bool:
        """Whether something is chosen by measuring when a run starts."""
        return False

    def about(self) -> str:
        """A few words for the report."""
        return self.name

    def uses_metabolism(self) -> bool:
        """Whether it reads reactions and metabolites."""
        return False

    def needs_relations(self) -> bool:
        """Whether it cannot do without an edge."""
        return True
