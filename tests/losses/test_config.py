"""What a configuration may say of a loss."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dglcell.config.read import load_config, to_yaml
from dglcell.errors import ConfigError
from dglcell.losses.config import MaskedConfig, MleWassSupcrConfig
from tests.config_files import refusal, write

# What the section `loss` can say: every wrong value is named by its key.


@pytest.fixture
def minimal(tmp_path: Path) -> Path:
    """Return a valid experiment."""
    return write(tmp_path, "minimal.yaml", "cell: {model: textbook}\n")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("{name: rmse}", "`loss.name` is unknown\n  got:      rmse\n  expected: mse, huber, bce, gaussian, mse_dist_"),
        ("{name: mse, supcr: 0.1}", "unknown key `loss.supcr`\n  expected: among name, phenotype_weights"),
        ("{name: mse_dist_supcr, buffer_size: 9}", "unknown key `loss.buffer_size`"),
        (
            "{name: mle_dist_supcr, wasserstein: 1}",
            "unknown key `loss.wasserstein`\n  expected: among name, phenotype_weights, mse, supcr",
        ),
        (
            "{name: huber, phenotype_weights: [1, -1]}",
            "`loss.phenotype_weights` are no weights\n  got:      [1.0, -1.0]\n  expected: 0 or more each, not all",
        ),
        ("{name: bce, phenotype_weights: [0, 0]}", "`loss.phenotype_weights` are no weights"),
        ("{name: mse_dist_supcr, mse: -1}", "`loss.mse` is no weight\n  got:      -1.0\n  expected: 0 or more"),
        ("{name: mse_dist_supcr, distribution: .inf}", "`loss.distribution` is no finite number\n  got:      inf"),
        ("{name: mse_dist_supcr, supcr: -0.1}", "`loss.supcr` is no weight"),
        (
            "{name: mle_wass_supcr, mse: 0, wasserstein: 0, supcr: 1}",
            "`loss` leaves the predictions without any term\n  got:      `loss.mse: 0`, `loss.wasserstein: 0`\n"
            "  do:       give one of them a weight; `loss.supcr` trains embeddings only",
        ),
        ("{name: mse_dist_supcr, temperature: 0}", "`loss.temperature` must be positive\n  got:      0.0"),
        ("{name: mse_dist_supcr, temperature_final: -1}", "`loss.temperature_final` must be positive"),
        (
            "{name: mse_dist_supcr, temperature_schedule: linear}",
            "`loss.temperature_schedule` is unknown\n  got:      linear\n  expected: none, exponential, cosine",
        ),
        (
            "{name: mse_dist_supcr, bandwidth: 0}",
            "`loss.bandwidth` must be positive\n  got:      0.0\n  expected: e.g. 0.5",
        ),
        ("{name: mle_dist_supcr, bandwidth: -1}", "`loss.bandwidth` must be positive"),
        ("{name: mle_wass_supcr, p: 3}", "`loss.p` is no order of the distance\n  got:      3\n  expected: 1 or 2"),
        ("{name: mle_wass_supcr, buffer_size: -1}", "`loss.buffer_size` is too small\n  got:      -1"),
        ("{name: mle_wass_supcr, min_samples: -1}", "`loss.min_samples` is too small"),
        ("{name: mle_wass_supcr, adaptive_warmup: -1}", "`loss.adaptive_warmup` is too small"),
        (
            "{name: mle_wass_supcr, min_samples: 300}",
            "`loss.min_samples` waits for more strains than are kept\n  got:      300\n"
            "  expected: at most `loss.buffer_size: 256`",
        ),
        (
            "{name: mle_wass_supcr, adaptive_warmup: 5, adaptive_stable: 4}",
            "`loss.adaptive_stable` comes before the end of `loss.adaptive_warmup`\n  got:      4\n  expected: 5 or",
        ),
    ],
)
def test_wrong_values_are_refused_by_key(minimal: Path, override: str, expected: str) -> None:
    assert expected in refusal(minimal, f"loss={override}")


def test_an_experiment_says_what_it_compares(minimal: Path) -> None:
    keys = "mse: 1.0, wasserstein: 0.1, p: 2, supcr: 0.0, buffer_size: 224, temperature: 1.0, adaptive: true"
    config = load_config(minimal, [f"loss={{name: mle_wass_supcr, {keys}}}"])
    assert isinstance(config.loss, MleWassSupcrConfig)
    assert config.loss.enough == 224
    assert "temperature_schedule: exponential" in to_yaml(config)


def test_contrast_needs_embeddings_and_says_so() -> None:
    assert MleWassSupcrConfig().needs() == frozenset()
    assert MleWassSupcrConfig(supcr=0.1).needs() == {"embedding"}


def test_weights_must_fit_the_phenotypes() -> None:
    with pytest.raises(ConfigError) as error:
        MaskedConfig(phenotype_weights=[1.0, 2.0, 3.0]).check_labels(torch.zeros(1, 2), ("a", "b"))
    assert str(error.value) == (
        "`loss.phenotype_weights` do not fit the phenotypes\n  got:      [1.0, 2.0, 3.0]\n"
        "  expected: 2: one each for a, b"
    )
