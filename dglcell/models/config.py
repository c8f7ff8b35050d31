"""What a configuration can say about the heterograph model."""

from __future__ import annotations

from dataclasses import dataclass, field

from dglcell.errors import ConfigError
from dglcell.graph.schema import GENE, NODE_TYPES
from dglcell.models.encoder_config import EncoderConfig
from dglcell.nn.combination import COMBINATIONS
from dglcell.perturbation.perturb import STRATEGIES


@dataclass
class HeteroCellConfig(EncoderConfig):
    """The heterograph model (``dglcell.models.hetero_cell.HeteroCell``)."""

    name: str = "hetero_cell"
    pool: list[str] = field(default_factory=lambda: [GENE])  # node types that are pooled
    scale_difference: bool = True  # multiply pooled differences by the number of nodes they are means over
    local_head: bool = True  # score the deleted genes by their wild-type states
    combination: str = "sum"  # sum | mean | gated | none, of global and local prediction
    strategy: str = "auto"  # auto | difference | node_mask | edge_mask | edge_subgraph, for the strains' graphs
    compile: str = "auto"  # auto | true | false: torch.compile for layers; auto where it works and a run is long enough
    choices: str | None = None  # choices.json of a run, for what `auto` takes; found by a short calibration where null

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """
        super().validate()
        self.check_choice("combination", (*COMBINATIONS, "none"))
        self.check_choice("strategy", ("auto", *STRATEGIES))
        self.compile = self.compile.lower()  # YAML's true is "True" here
        self.check_choice("compile", ("auto", "true", "false"))
        if not self.pool or set(self.pool) - set(NODE_TYPES):
            raise ConfigError("`model.pool` names no node types", got=self.pool, expected=", ".join(NODE_TYPES))
        if not self.metabolism and self.pool != [GENE]:
            raise ConfigError(
                "`model.pool` needs metabolism",
                got=self.pool,
                do="set `model.metabolism: true` or `model.pool: [gene]`",
            )
        self._validate_local_head()

    def is_calibrated(self) -> bool:
        """See ``ModelConfig.is_calibrated``."""
        return True

    def about(self) -> str:
        """See ``ModelConfig.about``."""
        return f"{self.name}, {self.strategy}"

    def _validate_local_head(self) -> None:
        if self.local_head:
            self.check_local_head()
        if self.local_head and self.combination == "none":
            raise ConfigError(
                "`model.combination: none` would leave the local head without use",
                do="set `model.local_head: false`, or combine by `sum`, `mean` or `gated`",
            )
        if not self.local_head and self.combination == "gated":
            raise ConfigError(
                "`model.combination: gated` needs the local head",
                do="set `model.local_head: true` or `model.combination: none`",
            )
