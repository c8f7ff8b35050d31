"""What a configuration can say about DANGO."""

from __future__ import annotations

from dataclasses import dataclass, field

from dglcell.errors import ConfigError
from dglcell.graph.schema import GENE
from dglcell.models.base_config import ModelConfig
from dglcell.nn.reconstruction import MEANS, TARGETS
from dglcell.nn.registry import make_activation

SCORERS = ("rezero", "released")


@dataclass
class DangoConfig(ModelConfig):
    """DANGO (``dglcell.models.dango.Dango``); defaults as in experiment 006 of the torchcell project."""

    name: str = "dango"
    hidden: int = 64  # H, width of every state
    activation: str = "relu"
    embedding_sd: float = 0.1  # of the genes' initial embeddings
    relations: list[str] | None = None  # names of the networks; all gene–gene relations of the cell graph where null
    meta_layers: int = 2  # Linear layers that weigh a gene's states in the networks
    reconstruction: bool = True  # predict every network's adjacency too, for `loss.name: dango`
    reconstruction_layers: int = 1  # Linear layers of that prediction
    reconstruction_target: str = "binary"  # binary | weight: edge weights, scaled to 0 … 1
    reconstruction_mean: str = (
        "pairs"  # pairs | rows: the mean over all pairs, or over edges and other pairs gene by gene
    )
    zero_weights: dict[str, float] = field(default_factory=dict)  # network → weight of pairs that are no edges (λ)
    scorer: str = "rezero"  # rezero: as the paper says | released: as the authors' code computes
    attention_layers: int = 2  # rounds of attention among the deleted genes; `released` has one
    heads: int = 4
    gain: float = 0.01  # initial share of that attention; `released` starts its feed-forward network from 0
    dropout: float = 0.0  # inside the scorer

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """
        super().validate()
        minima = (
            ("hidden", 1),
            ("meta_layers", 1),
            ("reconstruction_layers", 1),
            ("attention_layers", 1),
            ("heads", 1),
        )
        for key, minimum in minima:
            if getattr(self, key) < minimum:
                raise ConfigError(f"`model.{key}` is too small", got=getattr(self, key), expected=f"{minimum} or more")
        for key, allowed in (
            ("reconstruction_target", TARGETS),
            ("reconstruction_mean", MEANS),
            ("scorer", SCORERS),
        ):
            if getattr(self, key) not in allowed:
                raise ConfigError(f"`model.{key}` is unknown", got=getattr(self, key), expected=", ".join(allowed))
        make_activation(self.activation)
        if self.embedding_sd <= 0:
            raise ConfigError("`model.embedding_sd` must be positive", got=self.embedding_sd)
        if not 0 <= self.dropout < 1:
            raise ConfigError("`model.dropout` is no probability", got=self.dropout, expected="0 ≤ dropout < 1")
        if self.scorer == "rezero" and self.hidden % self.heads:
            raise ConfigError(
                "`model.heads` does not divide `model.hidden`", got=self.heads, expected=f"a divisor of {self.hidden}"
            )
        negative = {name: weight for name, weight in self.zero_weights.items() if weight < 0}
        if negative:
            raise ConfigError("`model.zero_weights` must not be negative", got=negative, expected="0 or more")
        if set(self.features) - {GENE}:
            raise ConfigError(
                "`model.features`: DANGO has states of genes only", got=", ".join(self.features), expected=GENE
            )

    def gives(self) -> frozenset[str]:
        """See ``ModelConfig.gives``."""
        return frozenset({"reconstruction"} if self.reconstruction else ())

    def asks(self) -> dict[str, str]:
        """See ``ModelConfig.asks``."""
        return {"reconstruction": "`loss.name: dango`, or `model.reconstruction: false`"} if self.reconstruction else {}
