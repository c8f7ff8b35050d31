"""DANGO: against plain torch with dense matrices, its size, what evaluation keeps, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentCell
from dglcell.kernels import spmm
from dglcell.losses.config import DangoLossConfig
from dglcell.losses.elementwise import DangoLoss
from dglcell.models.config import DangoConfig
from dglcell.models.dango import Dango, zero_weight
from dglcell.models.model import count_parameters
from dglcell.perturbation.genotype import GenotypeBatch
from tests.examples import examples
from tests.models.plain_dango import SCORER, Edge, PlainDango, random_networks
from tests.perturbation.no_sync import no_sync
from tests.random_cells import randomise, resident_cell

CHANNELS = ("neighborhood", "fusion", "cooccurence", "coexpression", "experimental", "database")
STRAINS = [[], [1], [0, 4], [2, 3, 5], [5, 3, 2]]


def make_cell(networks: dict[str, list[Edge]], num_genes: int) -> ResidentCell:
    """Return a cell of these networks."""
    ends = {("gene", n, "gene"): np.array(edges, int).reshape(-1, 2) for n, edges in networks.items()}
    return resident_cell({r: (pairs[:, 0], pairs[:, 1]) for r, pairs in ends.items()}, {"gene": num_genes})


def six_channels(genes: int) -> ResidentCell:
    return make_cell({f"string12_0_{channel}": [(0, 1)] for channel in CHANNELS}, genes)


def small_dango(**changes: Any) -> Dango:
    """Six genes and three networks."""
    networks = {"one": [(0, 1), (1, 2), (3, 3)], "two": [(5, 4)], "string_fusion": [(2, 0)]}
    config = DangoConfig(**{"hidden": 8, "heads": 2, "zero_weights": {"one": 0.1, "two": 0.7}, **changes})
    config.validate()
    torch.manual_seed(0)
    return Dango(make_cell(networks, 6), config)


@pytest.mark.parametrize("options", [{}, {"activation": "gelu", "embedding_std": 1.0}], ids=str)
@examples(6)
@given(seed=st.integers(0, 2**32 - 1), num_genes=st.integers(6, 9))
def test_predictions_errors_and_gradients_equal_dense_matrices_and_loops(
    options: dict[str, Any], seed: int, num_genes: int
) -> None:
    rng = np.random.default_rng(seed)
    networks = random_networks(rng, num_genes, ["a", "b", "string_coexpression"])
    zero_weights = {"a": 0.3, "b": 2.0}
    config = DangoConfig(hidden=6, heads=2, gain=0.5, zero_weights=zero_weights, **options)
    config.validate()
    torch.manual_seed(seed % 2**31)
    model = randomise(Dango(make_cell(networks, num_genes), config, outputs=2).double())
    plain = PlainDango(model, networks, {**zero_weights, "string_coexpression": 0.1})
    prediction = model(GenotypeBatch.from_lists(STRAINS))
    got = prediction.phenotypes, prediction.auxiliary["reconstruction"]
    expected = plain.forward(STRAINS)
    for value, right in zip(got, expected, strict=True):
        torch.testing.assert_close(value, right, atol=1e-10, rtol=1e-10)
    weights = torch.as_tensor(rng.normal(size=tuple(got[0].shape)))
    totals = [(value * weights).sum() + 5 * error for value, error in (got, expected)]
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = [torch.autograd.grad(t, parameters, allow_unused=True, materialize_grads=True) for t in totals]
    for name, gradient, right in zip(names, *gradients, strict=True):
        torch.testing.assert_close(gradient, right, atol=1e-10, rtol=1e-10, msg=lambda text, n=name: f"{n}: {text}")


def test_parameter_count_of_the_original() -> None:
    """3,138,270 = 454 · 6,607 + 138,692: six networks, H = 64."""
    assert count_parameters(Dango(six_channels(6607), DangoConfig())) == 3_138_270
    assert count_parameters(Dango(six_channels(100), DangoConfig())) == 454 * 100 + 138_692


def test_weights_start_as_in_the_original() -> None:
    torch.manual_seed(0)
    model = Dango(six_channels(3000), DangoConfig())
    named = dict(model.named_parameters())
    for name, sd in (("encoder.embedding.weight", 0.1), ("encoder.heads.3.out.weight", 0.1)):
        assert float(named[name].detach().std()) == pytest.approx(sd, rel=0.01), name
    # Xavier: uniform in ± √2 · √(6 / (inputs + outputs)), of queries, keys and values by themselves.
    for name, limit in (
        ("encoder.meta.weight.0.weight", (12 / 96) ** 0.5),
        (f"{SCORER}.static.0.weight", (12 / 128) ** 0.5),
        (f"{SCORER}.attention.1.project.weight", (12 / 128) ** 0.5),
        (f"{SCORER}.attention.0.out.weight", (12 / 128) ** 0.5),
    ):
        assert 0.97 * limit < float(named[name].detach().abs().max()) <= limit, name
    for name in ("encoder.heads.0.out", "encoder.meta.weight.2", f"{SCORER}.static.0", f"{SCORER}.score"):
        assert not named[f"{name}.bias"].any(), name
    assert named[f"{SCORER}.attention.0.beta"].item() == pytest.approx(0.01)


def test_input_features_are_added_to_embeddings() -> None:
    features = torch.randn(6, 3, dtype=torch.float64)
    cell, config = small_dango().cell, small_dango().config
    model = Dango(cell, config, features={"gene": features}).double()
    genotypes = GenotypeBatch.from_lists(STRAINS)
    with_features = model(genotypes).phenotypes
    with torch.no_grad():
        model.encoder.embedding.weight += model.encoder.project["gene"](features)
        model.encoder.project["gene"].weight.zero_()
        model.encoder.project["gene"].bias.zero_()
    torch.testing.assert_close(model(genotypes).phenotypes, with_features)
    assert not any(name.startswith("features") and p.requires_grad for name, p in model.named_parameters())


def test_a_reconstruction_that_nobody_reads_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = small_dango(), []
    model.encoder.heads[0].register_forward_hook(lambda *arguments: calls.append(1) and None)
    prediction = model(GenotypeBatch.from_lists(STRAINS))
    assert list(prediction.auxiliary) == ["reconstruction"]
    assert not calls
    assert prediction.auxiliary["reconstruction"] is prediction.auxiliary["reconstruction"]
    assert len(calls) == 1
    with torch.no_grad():
        kept = model.eval()(GenotypeBatch.from_lists(STRAINS)).auxiliary["reconstruction"]
    torch.testing.assert_close(kept, prediction.auxiliary["reconstruction"].detach())
    without = small_dango(reconstruction=False, zero_weights={})
    assert not without(GenotypeBatch.from_lists(STRAINS)).auxiliary
    assert not without.encoder.heads


def test_a_step_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spmm, "default_kernel", lambda device_type: "csr")
    model, loss, target = small_dango(), DangoLoss(DangoLossConfig(), 20), torch.randn(len(STRAINS), 1)
    genotypes = GenotypeBatch.from_lists(STRAINS)
    loss(model(genotypes), target, 3).total.backward()
    with no_sync() as operators:
        loss(model(genotypes), target, 3).total.backward()
    assert operators.count > 100


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"hidden": 0}, "`model.hidden` is too small"),
        ({"heads": 3}, "`model.heads` does not divide `model.hidden`\n  got:      3\n  expected: a divisor of 8"),
        ({"zero_weights": {"one": -1.0}}, "`model.zero_weights` must not be negative"),
        ({"features": {"reaction": "t.csv"}}, "`model.features`: DANGO has states of genes only\n  got:      reaction"),
        ({"relations": ["three"]}, "`model.relations` names no networks of genes that the cell graph has"),
        ({"relations": []}, "`model.relations` is an empty list"),
        ({"zero_weights": {"tow": 1.0}}, "`model.zero_weights` names networks that are not used\n  got:      ['tow']"),
        ({"zero_weights": {}}, "how much do the pairs that are no edges of 'one' count when it is reconstructed?"),
    ],
)
def test_wrong_options_are_refused_by_key(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        small_dango(**changes)
    assert str(error.value).startswith(expected)
    cell = resident_cell({("gene", "catalyses", "reaction"): ([0], [0])}, {"gene": 1, "reaction": 1})
    with pytest.raises(ConfigError, match="DANGO needs networks of genes"):
        Dango(cell, DangoConfig())


def test_a_network_has_the_lambda_of_its_channel_unless_it_is_given() -> None:
    growing = {"neighborhood", "coexpression", "experimental"}
    for channel, prefix in itertools.product(CHANNELS, ("string9_1_", "string12_0_", "string_", "")):
        assert zero_weight(f"{prefix}{channel}", {}) == (0.1 if channel in growing else 1.0)
    given = {"string_fusion": 0.25, "physical": 0.5}
    assert (zero_weight("string_fusion", given), zero_weight("physical", given)) == (0.25, 0.5)
    for name in ("string_coexpression_transferred", "string_textmining", "confusion", "fusions"):
        with pytest.raises(
            ConfigError, match=rf"no edges of '{name}' count[\s\S]*do: +set `model.zero_weights: {{{name}: 1.0}}`"
        ):
            zero_weight(name, given)
