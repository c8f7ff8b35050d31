"""The set operator model: against plain loops, as a function of sets, its kept encoding, what it refuses."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dglcell.errors import ConfigError
from dglcell.models.cell_model import SetOperator
from dglcell.models.config import OPERATORS, SetOperatorConfig
from dglcell.models.model import make_model
from dglcell.models.terms import scores
from dglcell.perturbation.genotype import GenotypeBatch
from tests.examples import examples
from tests.models.plain_set_operator import plain_parts
from tests.models.test_hetero_cell import nine_network_cell
from tests.random_cells import RandomCell, genotypes_of, random_cells, randomise

TOLERANCE = {"atol": 1e-10, "rtol": 1e-10}
STRAINS = [[0, 1, 2], [], [3, 4], [5]]


def make(cell, outputs: int = 2, **changes) -> SetOperator:
    """Return a model in double precision with random weights."""
    base = {"hidden": 8, "layers": 2, "local_heads": 2, "operator": "both", "local_kind": "both"}
    config = SetOperatorConfig(**{**base, "local_deviations": True, **changes})
    config.validate()
    torch.manual_seed(0)
    model = make_model(config, cell, outputs).double()
    assert isinstance(model, SetOperator)
    return randomise(model)


def predict(model: SetOperator, strains: list[list[int]]) -> Tensor:
    return model(GenotypeBatch.from_lists(strains)).phenotypes


@examples(13)
@given(
    data=st.data(),
    cell=random_cells(),
    conv=st.sampled_from(["gin", "sage"]),
    gin_layers=st.sampled_from([0, 2]),
    local_factors=st.sampled_from([None, 3]),
    local_deviations=st.booleans(),
    block=st.sampled_from([1, 40, 1 << 20]),
)
def test_parts_equal_a_plain_network_strain_by_strain(data, cell: RandomCell, block: int, **changes) -> None:
    strains = [*data.draw(genotypes_of(cell)), [], [*range(cell.sizes["gene"])]]
    model = make(cell.resident, local_kind="factorisation", **changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores, "BLOCK_LOGITS", block)
        got = model(GenotypeBatch.from_lists(strains))
    expected = [plain_parts(model, cell, strain) for strain in strains]
    for name, part in {"difference": got.embedding, **got.parts}.items():
        np.testing.assert_allclose(part.detach().numpy(), np.stack([e[name] for e in expected]), **TOLERANCE)
    torch.testing.assert_close(got.phenotypes, got.parts["operator"] + got.parts["genes"])


def test_a_strain_that_deletes_every_gene_has_a_finite_prediction_and_gradient() -> None:
    model = make(nine_network_cell(3), metabolism=False)
    predict(model, [[0, 1, 2]]).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("combination", ["sum", "mean"])
def test_every_parameter_gets_a_gradient(operator: str, combination: str) -> None:
    model = make(nine_network_cell(6), operator=operator, metabolism=False, combination=combination)
    predict(model, STRAINS).sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"operator": "transformer"}, r"`model.operator` is unknown\n  got:      transformer\n  expected: local, both"),
        ({"combination": "none"}, r"`model.combination` is unknown"),
        (
            {"operator": "both", "hidden": 10, "local_heads": 2},
            r"`model.hidden` is not shared evenly.*\n.*10\n.*multiple of 4",
        ),
        ({"local_heads": 5}, r"`model.local_heads` does not divide `model.hidden`"),
        ({"local_deviations": True}, r"`model.local_deviations` needs factorisation"),
    ],
)
def test_bad_configurations_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SetOperatorConfig(**changes).validate()


def test_an_untrained_model_predicts_about_the_mean_whatever_its_embeddings_are() -> None:
    for sd, kind in itertools.product((0.02, 0.1), ("hyper_sagnn", "factorisation", "both")):
        config = SetOperatorConfig(
            operator="both", local_kind=kind, embedding_std=sd, metabolism=False, layers=1, cross_relation="mean"
        )
        torch.manual_seed(0)
        model = make_model(config, nine_network_cell(500), 1)
        assert isinstance(model, SetOperator)
        table = model.encoder.embeddings["gene"].weight
        assert table.std().item() == pytest.approx(sd, rel=0.02)
        # Of the sum of two parts; their mean is within 0.5.
        assert predict(model, [[b, b + 1] for b in range(200)]).square().mean().sqrt() < 1.0


def test_only_an_operator_that_pools_gives_an_embedding() -> None:
    for operator, deletions in itertools.product(OPERATORS, (0, 2)):
        model = make(nine_network_cell(6), operator=operator, metabolism=False)
        embedding = model(GenotypeBatch.from_lists([list(range(deletions))])).embedding
        assert ("embedding" in model.config.provides()) == (embedding is not None)
