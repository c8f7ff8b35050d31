"""Growth media of a metabolic model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cobra import Metabolite, Model, Reaction
from cobra.io import load_model

from dglcell.errors import ConfigError, GraphError
from dglcell.graph.media import Media


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model("textbook")


def test_a_medium_changes_the_models_own(model: Model) -> None:
    media = Media.of(model, {"own": {}, "pyruvate": {"EX_pyr_e": 20, "EX_glc__D_e": 0}}, "cell.media")
    assert media.names == ("own", "pyruvate")
    assert media.exchanges == tuple(reaction.id for reaction in model.exchanges)
    own, pyruvate = (dict(zip(media.exchanges, row, strict=True)) for row in media.uptakes.tolist())
    assert {name: uptake for name, uptake in own.items() if uptake} == model.medium
    assert pyruvate == {**own, "EX_pyr_e": 20, "EX_glc__D_e": 0}


def test_no_media(model: Model) -> None:
    assert Media.of(model, {}, "cell.media").uptakes.shape == (0, len(model.exchanges))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"EX_glc_e": 1},
            r"`cell.media.m` names no exchange reaction of e_coli_core\n.*EX_glc_e\n.*\n.*did you mean EX_glc__D_e",
        ),
        ({"PGI": 1}, "`cell.media.m` names no exchange reaction"),
        ({"EX_o2_e": -1}, r"`cell.media.m.EX_o2_e` is no uptake\n  got:      -1\n"),
        ({"EX_o2_e": math.nan}, "`cell.media.m.EX_o2_e` is no uptake"),
        ({"EX_o2_e": math.inf}, "`cell.media.m.EX_o2_e` is no uptake"),
    ],
)
def test_a_wrong_change_is_refused(model: Model, changes: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Media.of(model, {"m": changes}, "cell.media")


def test_a_medium_without_uptake_is_refused(model: Model) -> None:
    with pytest.raises(ConfigError, match=r"`cell\.media\.empty` closes every exchange reaction"):
        Media.of(model, {"empty": dict.fromkeys(model.medium, 0.0)}, "cell.media")


@pytest.mark.parametrize(("compartments", "reason"), [((), "expected: "), (("e", "extracellular"), "got: .*several")])
def test_a_model_without_an_outside_is_refused(compartments: tuple[str, ...], reason: str) -> None:
    model = Model("m")
    for compartment in compartments:
        model.add_reactions([exchange := Reaction(f"EX_{compartment}")])
        exchange.add_metabolites({Metabolite(compartment, compartment=compartment): -1})
    with pytest.raises(GraphError, match=f"the metabolic model has no exchange reactions.*\n  {reason}"):
        Media.of(model, {"m": {"EX_e": 1}}, "cell.media")


def test_an_exchange_without_a_bound_takes_up_without_limit(model: Model) -> None:
    with model:
        model.reactions.EX_o2_e.lower_bound = -np.inf
        media = Media.of(model, {"own": {}}, "cell.media")
    assert media.uptakes[0, media.exchanges.index("EX_o2_e")] == np.inf
