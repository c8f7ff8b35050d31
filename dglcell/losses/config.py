"""Define what an experiment says about its loss; reading it needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dglcell.checks import Number, Positive, at_least, check_values, must, one_of
from dglcell.errors import ConfigError

Weight = Annotated[float, must(lambda weight: weight >= 0, "is no weight", "0 or more")]
SmallestSD = Annotated[float, must(lambda sd: 0 < sd <= 1, "is no noise level", "more than 0, at most 1")]
Steps = Annotated[int, at_least(1, also=" steps")]
Epoch = Annotated[int, at_least(0, "is negative")]

FINAL_ALPHA = {"pre_then_post": 0.0, "linear_until_uniform": 0.5, "linear_until_flipped": 0.0}
"""This maps schedules to weights of the reconstruction from the transition on."""

AlphaSchedule = Annotated[str, one_of(*FINAL_ALPHA)]


@dataclass
class LossConfig:
    """Configure a loss; each kind adds its own keys. ``implementation`` is the loss as MODULE:CLASS."""

    implementation = ""

    name: str = ""  # kind of loss: a key of `LOSSES`, or MODULE:CLASS of your own

    def validate(self) -> None:
        """Check values and their combinations; a ``ConfigError`` names the key."""
        check_values(self, "loss")

    def needs(self) -> frozenset[str]:
        """Return what the loss reads of predictions beside phenotypes; see ``ModelConfig.provides``."""
        return frozenset()

    def predicts_logits(self) -> bool:
        """Return whether predictions are logits of labels from 0 to 1, which are then not normalised."""
        return False


@dataclass
class MaskedConfig(LossConfig):
    """Configure an element-wise loss."""

    implementation = "dglcell.losses.loss:MaskedLoss"

    name: str = "mse"  # mse | huber


@dataclass
class BceConfig(MaskedConfig):
    """Configure binary cross-entropy; the model predicts logits, labels are 0 to 1 and are not normalised."""

    name: str = "bce"

    def predicts_logits(self) -> bool:
        return True


@dataclass
class GaussianConfig(LossConfig):
    """Configure a Gaussian likelihood with a noise level for each phenotype, for screens of unequal precision."""

    implementation = "dglcell.losses.loss:GaussianLoss"

    name: str = "gaussian"
    smallest_sd: SmallestSD = 0.2  # smallest noise level, in normalised units, so that no phenotype dominates
    memory: Steps = 100  # training steps whose squared errors are averaged to estimate a noise level


@dataclass
class CoupledConfig(LossConfig):
    """Configure squared error, a distance between distributions, and supervised contrast of embeddings.

    A term of weight 0 is left out, and is not recorded. ``distance_key`` is the key of the weight of the distance.
    """

    implementation = "dglcell.losses.coupled:CoupledLoss"
    distance_key = ""

    mse: Weight = 1.0  # weight of the squared error
    supcr: Weight = 0.001  # weight of the supervised contrast; needs a model with embeddings
    temperature: Positive = 0.1  # temperature of the contrast, in the first epoch
    temperature_final: Positive | None = None  # what it falls to over all epochs, exponentially; null: it is constant

    def validate(self) -> None:
        super().validate()
        if self.mse == 0 and getattr(self, self.distance_key) == 0:
            raise ConfigError(
                "`loss` leaves the predictions without any term",
                got=f"`loss.mse: 0`, `loss.{self.distance_key}: 0`",
                do="give one of them a weight; `loss.supcr` trains embeddings only",
            )

    def needs(self) -> frozenset[str]:
        return frozenset({"embedding"} if self.supcr > 0 else ())


@dataclass
class MseDistSupcrConfig(CoupledConfig):
    """Configure squared error + distribution matching + SupCR, within a batch."""

    distance_key = "distribution"

    name: str = "mse_dist_supcr"
    distribution: Weight = 0.1  # weight of the distribution matching


@dataclass
class MleWassSupcrConfig(CoupledConfig):
    """Configure squared error + Wasserstein distance + SupCR, the latter two over a buffer as well.

    Both wait until training has seen ``buffer_size`` labelled strains.
    """

    distance_key = "wasserstein"

    name: str = "mle_wass_supcr"
    supcr: Weight = 0.0
    temperature: Positive = 1.0
    temperature_final: Positive | None = 0.1
    wasserstein: Weight = 0.1  # weight of the distance
    buffer_size: Number = 256  # strains of earlier batches that are also compared, without gradient; 0: none
    adaptive: bool = True  # true: few buffered strains in early epochs, more later; false: always the whole buffer


@dataclass
class DangoLossConfig(LossConfig):
    """Configure reconstruction and interaction, weighted by epoch, as in experiment 006 of the torchcell project."""

    implementation = "dglcell.losses.loss:DangoLoss"

    name: str = "dango"
    schedule: AlphaSchedule = "linear_until_uniform"  # pre_then_post | linear_until_uniform | linear_until_flipped
    transition_epoch: Epoch = 10  # T, the epoch after which the weights are constant

    def needs(self) -> frozenset[str]:
        return frozenset({"reconstruction"})

    def alpha(self, epoch: int) -> float:
        """Return the weight of the reconstruction in an epoch, counted from 0."""
        final = FINAL_ALPHA[self.schedule]
        if epoch >= self.transition_epoch:
            return final
        return 1.0 if self.schedule == "pre_then_post" else 1.0 - (1.0 - final) * epoch / self.transition_epoch


LOSSES: dict[str, type[LossConfig]] = dict.fromkeys(("mse", "huber"), MaskedConfig) | {
    kind.name: kind for kind in (BceConfig, GaussianConfig, MseDistSupcrConfig, MleWassSupcrConfig, DangoLossConfig)
}
"""This maps `loss.name` to the configuration class of the section."""
