"""What every loss is."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

from torch import Tensor, nn

from dglcell.models.prediction import Prediction


@dataclass
class LossConfig:
    """A loss; each kind adds its own keys."""

    name: str = ""  # which loss, a key of `dglcell.losses.build.LOSSES`

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """

    def needs(self) -> frozenset[str]:
        """What it reads of predictions beside phenotypes; see ``ModelConfig.gives``."""
        return frozenset()

    def predicts_logits(self) -> bool:
        """Whether predictions are logits of labels from 0 to 1, which are then not normalised."""
        return False


@dataclass(frozen=True)
class LossTerms:
    """A loss and what it is made of.

    Attributes:
        total: scalar with gradient.
        terms: name → detached scalar, recorded per epoch as ``train/loss/<name>``.
    """

    total: Tensor
    terms: dict[str, Tensor] = field(default_factory=dict)


class Loss(nn.Module):
    """A loss over labels of which some are missing, in normalised units."""

    @abstractmethod
    def forward(self, prediction: Prediction, target_BT: Tensor, epoch: int) -> LossTerms:
        """The loss of one batch.

        Args:
            prediction: of B strains.
            target_BT: [B, T], NaN where missing.
            epoch: from 0.
        """
