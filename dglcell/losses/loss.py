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

    def check_labels(self, labels_ST: Tensor, phenotypes: tuple[str, ...]) -> None:
        """Refuse labels that it cannot learn, before training.

        Args:
            labels_ST: in original units, NaN where missing.
            phenotypes: T names.

        Raises:
            ConfigError, DataError: naming the key or the phenotype.
        """


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
    """A loss over labels of which some are missing, in normalised units.

    With several ranks it is the loss of all their batches together, the same number on each of them, and its gradient
    is right once DistributedDataParallel has averaged it; see ``dglcell.losses.gather``.

    Attributes:
        batch_size: most strains that a rank can have in a training step. Where None, ranks that compare each other's
            strains ask for it in every step, which the host waits for.
    """

    batch_size: int | None = None

    @abstractmethod
    def forward(self, prediction: Prediction, target_BT: Tensor, epoch: int) -> LossTerms:
        """The loss of one batch.

        Args:
            prediction: of B strains.
            target_BT: [B, T], NaN where missing.
            epoch: from 0.
        """
