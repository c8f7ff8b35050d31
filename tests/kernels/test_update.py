"""Compiled updates of rows against torch's operators, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba
import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dglcell.graph.schema import Relation
from dglcell.kernels import math_numba, update
from dglcell.kernels.update import Update
from dglcell.models.config import HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.nn.gin import GINConv
from dglcell.nn.hetero_layer import RelationConv
from dglcell.nn.sage import SAGEConv
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.row_blocks import Shape
from dglcell.perturbation.row_wise import Rows, Term, sum_terms
from tests.random_cells import RandomCell, genotypes_of, random_cells

RELATION: Relation = ("gene", "physical", "gene")


@contextmanager
def compiled_on(*devices: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(update, "COMPILED_DEVICES", devices)
        yield


def relation_conv(
    conv: str, width: int, norm: str, activation: str, *, hidden: int | None = None, layers: int = 2
) -> RelationConv:
    inner: nn.Module = SAGEConv(RELATION, width)
    if conv == "gin":
        inner = GINConv(RELATION, width, hidden=hidden or width, layers=layers, activation=activation, dropout=0.0)
    module = RelationConv(inner, width, norm, activation, 0.0, True)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


def rows_and_gradients(
    modules: list[RelationConv], width: int, pairs: int, dtype: torch.dtype, constant: tuple[int, ...] = ()
) -> list[Tensor]:
    """A sum of an update of all pairs, one of every third pair, and the input: its rows, then all gradients.

    Args:
        modules: the two updates.
        width: H.
        pairs: K.
        dtype: of all.
        constant: which tables need no gradient.
    """
    generator = torch.Generator().manual_seed(0)
    nodes, place = torch.randint(0, 5, (pairs,), generator=generator), torch.arange(0, pairs, 3)
    x, received, shared = (
        torch.randn(5 + number, width, generator=generator).to(dtype).requires_grad_(i not in constant)
        for i, number in enumerate((pairs, pairs, 0))
    )
    everyone = torch.arange(5)
    terms = [
        Term(modules[0].row_wise(), [Rows(x), Rows(shared, torch.cat([everyone, nodes]), 5)]),
        Term(
            modules[1].row_wise(),
            [Rows(x, torch.cat([everyone, 5 + place]), 5), Rows(received[: 5 + len(place)])],
            place,
        ),
        Term(None, [Rows(x)]),
    ]
    out = sum_terms(terms, Shape(5, pairs, nodes))
    upstream = torch.randn(out.shape, generator=generator).to(dtype)
    parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
    leaves = [*(t for t in (x, received, shared) if t.requires_grad), *parameters]
    return [out.detach(), *torch.autograd.grad(out, leaves, upstream)]


@settings(max_examples=80)
@given(data=st.data())
def test_updates_equal_torch_in_double_precision(data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    width = data.draw(st.sampled_from([1, 3, 64]))
    norm = data.draw(st.sampled_from(["layer", "rms", "none"]))
    modules = [
        relation_conv(
            data.draw(st.sampled_from(["gin", "sage"])),
            width,
            norm,
            data.draw(st.sampled_from(["gelu", "relu", "silu"])),
            hidden=data.draw(st.sampled_from([None, 2])),
            layers=data.draw(st.integers(1, 3)),
        ).double()
        for _ in range(2)
    ]
    for module in modules:
        for parameter in module.parameters():
            parameter.requires_grad_(data.draw(st.booleans()))
    pairs = data.draw(st.sampled_from([0, 1, 40, 1100]))
    constant = data.draw(st.sampled_from([(), (0,), (1, 2)]))
    arguments = (modules, width, pairs, torch.float64, constant)
    with compiled_on("cpu"):
        found = rows_and_gradients(*arguments)
    with compiled_on():
        expected = rows_and_gradients(*arguments)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10 * max(1.0, pairs))


@pytest.mark.parametrize("activation", ["gelu", "relu", "silu"])
@pytest.mark.parametrize(("conv", "norm"), [("gin", "layer"), ("gin", "rms"), ("sage", "layer"), ("sage", "none")])
def test_single_precision_is_as_exact_as_torch(conv: str, norm: str, activation: str) -> None:
    """Against double precision, the compiled updates may err by little more than torch's operators do."""
    torch.manual_seed(0)
    modules = [relation_conv(conv, 64, norm, activation) for _ in range(2)]

    def errors(*devices: str) -> Tensor:
        with compiled_on(*devices):
            found = rows_and_gradients(modules, 64, 3000, torch.float32)
        return torch.stack([(x - y).abs().max() / y.abs().max() for x, y in zip(found, exact, strict=True)])

    with compiled_on():
        for module in modules:
            module.double()
        exact = rows_and_gradients(modules, 64, 3000, torch.float64)
        for module in modules:
            module.float()
    assert (errors("cpu") < 4 * errors() + 2e-6).all()


@pytest.mark.parametrize("name", ["exp", "erf"])
def test_single_precision_functions_are_right_to_a_few_last_digits(name: str) -> None:
    function = getattr(math_numba, name)

    @numba.njit
    def over(x, out):
        for i in range(len(x)):
            out[i] = function(x[i])

    x = np.concatenate([np.linspace(-20, 20, 400_001), np.geomspace(1e-30, 87, 100_001), [0.0, np.inf, -np.inf]])
    x = np.concatenate([x, -x]).astype(np.float32)
    if name == "exp":
        x = x[x < 88]
    out = np.empty_like(x)
    over(x, out)
    exact = {"exp": np.exp, "erf": scipy.special.erf}[name](x.astype(np.float64))
    # Numbers too small for full precision become 0.
    scale = np.where(np.abs(exact) < 1.3e-38, 1, np.abs(exact))
    assert (np.abs(out - exact) / scale).max() < 4e-7
    assert not np.isnan(out).any()


@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_activations_and_slopes_far_from_zero(activation: str) -> None:
    function = getattr(math_numba, activation)

    @numba.njit
    def over(x, values, slopes):
        for i in range(len(x)):
            values[i], slopes[i] = function(x[i])

    x = torch.cat([torch.linspace(-200, 200, 4001), torch.tensor([-1e18, -1e4, 1e4, 1e18])]).requires_grad_()
    values, slopes = (np.empty(len(x), np.float32) for _ in range(2))
    over(x.detach().numpy(), values, slopes)
    expected = getattr(torch.nn.functional, activation)(x)
    (slopes_expected,) = torch.autograd.grad(expected.sum(), x)
    torch.testing.assert_close(torch.from_numpy(values), expected.detach(), rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(torch.from_numpy(slopes), slopes_expected, rtol=2e-6, atol=2e-6)


def test_a_missing_value_stays_missing() -> None:
    for activation in ("gelu", "relu", "silu"):
        module = relation_conv("gin", 3, "none", activation)
        x = torch.zeros(2, 3)
        x[1, 0] = torch.nan
        out = sum_terms([Term(module.row_wise(), [Rows(x), Rows(torch.zeros(2, 3))])], Shape(0, 2))
        assert out.isnan().all(1).tolist() == [False, True]


def test_the_number_of_threads_changes_nothing() -> None:
    torch.manual_seed(0)
    modules = [relation_conv("gin", 64, "layer", "gelu") for _ in range(2)]
    threads = torch.get_num_threads()
    try:
        results = []
        for number in (1, 2, 2):
            torch.set_num_threads(number)
            results.append(rows_and_gradients(modules, 64, 5000, torch.float32))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(x, y) for x, y in zip(results[0], other, strict=True))


def test_other_modules_and_autocast_are_left_to_torch() -> None:
    network = relation_conv("gin", 3, "layer", "gelu").conv.network()
    assert Update.of(network, nn.LayerNorm(3), nn.GELU()) is not None
    assert Update.of(network, nn.LayerNorm(3), nn.GELU(approximate="tanh")) is None
    assert Update.of(network, nn.LayerNorm(3), nn.Tanh()) is None
    assert Update.of(network, nn.GroupNorm(1, 3), nn.GELU()) is None
    module = relation_conv("gin", 8, "layer", "gelu")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rows = sum_terms([Term(module.row_wise(), [Rows(torch.ones(4, 8)), Rows(torch.ones(4, 8))])], Shape(0, 4))
        assert torch.equal(rows, module.row_wise().function(torch.ones(4, 8), torch.ones(4, 8)).to(rows.dtype))


@pytest.mark.parametrize("strategy", ["difference", "node_mask"])
@settings(max_examples=10)
@given(data=st.data())
def test_a_whole_step_is_the_same_without_compiled_updates(strategy: str, data: st.DataObject) -> None:
    cell: RandomCell = data.draw(random_cells())
    batch = GenotypeBatch.from_lists(data.draw(genotypes_of(cell)))
    conv = data.draw(st.sampled_from(["gin", "sage"]))
    torch.manual_seed(0)
    config = HeteroCellConfig(hidden=8, layers=2, local_heads=2, strategy=strategy, conv=conv)
    model = HeteroCell(cell.resident, config, 1).double()

    def step(*devices: str) -> list[Tensor]:
        with compiled_on(*devices):
            phenotypes = model(batch).phenotypes
            gradients = torch.autograd.grad(phenotypes.square().sum(), list(model.parameters()), allow_unused=True)
        return [phenotypes.detach(), *(g for g in gradients if g is not None)]

    for one, other in zip(step("cpu"), step(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)
