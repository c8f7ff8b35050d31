"""Which reactions a strain loses, and growth as a column of measured strains."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from cobra import Gene, Model, Reaction
from cobra.io import load_model
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dglcell.data.columns import COMPUTED
from dglcell.data.sources import Computed, Work
from dglcell.data.sources.config import FbaConfig, InSilicoConfig
from dglcell.data.sources.fba import Bounds, FluxSolver, Solution
from dglcell.data.sources.growth import RESOLUTION, FbaGrowth, KnockoutRules, snap
from dglcell.data.sources.insilico import load_insilico
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError, DglcellError, GraphError
from dglcell.graph.cell import CellConfig
from dglcell.graph.metabolism import enzyme_complexes
from tests.examples import examples

GENES = [f"g{i}" for i in range(6)]
RULES = st.recursive(
    st.sampled_from(GENES),
    lambda inner: st.builds(
        lambda parts, word: f"({f' {word} '.join(parts)})",
        st.lists(inner, min_size=2, max_size=4),
        st.sampled_from(["and", "or"]),
    ),
    max_leaves=10,
)


@examples(30)
@given(st.lists(RULES, min_size=1, max_size=8), st.dictionaries(st.sampled_from(GENES), st.sampled_from([0, 0.25, 1])))
def test_a_reaction_is_as_strong_as_its_best_complex(texts: list[str], changed: dict[str, float]) -> None:
    model = Model("random")
    model.genes += [Gene(name) for name in GENES]
    for i, text in enumerate(texts):
        reaction = Reaction(f"r{i}")
        model.add_reactions([reaction])
        reaction.gene_reaction_rule = text
    rules = KnockoutRules.of(model)
    genes = np.array([rules.genes.index(gene) for gene in changed], dtype=np.int64)
    (left,) = rules.left(1, np.zeros_like(genes), genes, np.array([*changed.values()], np.float32))
    found = {int(reaction): left[rule] for rule, of in enumerate(rules.reactions) for reaction in of}
    assert found == {
        i: max(min(changed.get(gene, 1.0) for gene in genes) for genes in enzyme_complexes(reaction.gpr))
        for i, reaction in enumerate(model.reactions)
    }


def test_snap_moves_only_what_is_close() -> None:
    values = np.array([0.9 * RESOLUTION, 1.1 * RESOLUTION, 1 - 0.9 * RESOLUTION, 0.5, np.nan])
    np.testing.assert_array_equal(snap(values, 0.0, 1.0), [0.0, values[1], 1.0, 0.5, np.nan])


# Growth as a column of measured strains.


MEDIA = {"own": {}, "fructose": {"EX_glc__D_e": 0.0, "EX_fru_e": 10.0}}
WORK = Work()


def simulator(**config: object) -> FbaGrowth:
    return FbaGrowth(FbaConfig(**{"model": "textbook", "media": MEDIA, "processes": 1, **config}))  # type: ignore[arg-type]


def growth(strains: Strains, **config: object) -> NDArray[np.float32]:
    return simulator(**config).compute(strains, WORK)


def own_growth() -> float:
    return float(load_model("textbook").slim_optimize())


def test_it_is_what_the_screen_computes_in_whatever_batches(caplog: pytest.LogCaptureFixture) -> None:
    options = {"pairs": "300", "triples": "60", "activities": [0.3, 0.0, 0.05, 0.7], "media": MEDIA, "processes": 1}
    screen = load_insilico(InSilicoConfig(**options))  # type: ignore[arg-type]
    found, batches = growth(screen), simulator()
    np.testing.assert_allclose(found / own_growth(), screen.phenotypes["fitness"], atol=1e-6)
    assert len(np.unique(found)) > 50
    middle = len(screen) // 2
    parts = [batches.compute(part, WORK) for part in (screen.slice(0, middle), screen.slice(middle, len(screen)))]
    np.testing.assert_allclose(np.concatenate(parts), found, atol=1e-6)
    caplog.set_level(logging.INFO)
    caplog.clear()
    batches.compute(screen, WORK)
    assert "linear programs" not in caplog.text  # nothing is left to solve


def test_a_strain_without_an_answer_grows_as_the_wild_type(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    solve = FluxSolver.solve

    def give_up(of: FluxSolver, bounds: Bounds) -> Solution:
        return Solution(float("nan"), timed_out=True) if len(bounds.reactions) else solve(of, bounds)

    monkeypatch.setattr(FluxSolver, "solve", give_up)
    found = growth(Strains.from_names([["b2779"], ["b2779"], []]), media={})
    np.testing.assert_allclose(found, own_growth(), atol=1e-6)
    assert (
        "the solver gave no answer to 1 linear program, whose strains have the growth of the wild type" in caplog.text
    )


def test_names_of_genes_and_genes_that_the_model_lacks() -> None:
    strains = Strains.from_names([["pfkA"], ["b3916"], ["mystery"], ["B2779"], []])
    found = growth(strains, media={}) / own_growth()
    model = load_model("textbook")
    model.genes.get_by_id("b2779").knock_out()
    eno = model.slim_optimize() / own_growth()
    np.testing.assert_allclose(found, [found[1], found[1], 1.0, eno, 1.0], atol=1e-6)


def test_media_may_be_numbers() -> None:
    covariates = {"acetate": [0.0, 1.0, 0.5], "lactate": [1.0, 1.0, 0.0]}
    strains = Strains.from_names([[], [], []], covariates=covariates)
    uptakes = {"acetate": {"EX_ac_e": 20.0}, "lactate": {"EX_lac__D_e": 10.0}}
    found = growth(strains, media={}, base={"EX_glc__D_e": 0.0}, uptakes=uptakes)
    for value, acetate, lactate in zip(found, (0, 20, 10), (10, 10, 0), strict=True):
        model = load_model("textbook")
        for exchange, uptake in (("EX_glc__D_e", 0), ("EX_ac_e", acetate), ("EX_lac__D_e", lactate)):
            model.reactions.get_by_id(exchange).lower_bound = -uptake
        assert value == pytest.approx(model.slim_optimize(), abs=1e-5)


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"media": {"own": {}}}, DataError, "a medium of strains is not described\n.*fructose"),
        ({"media": {"own": {}, "fructose": {"EX_none": 1.0}}}, ConfigError, "names no exchange reaction"),
        ({"base": {"EX_none": 1.0}}, ConfigError, "`data.fba.base` names no exchange reaction"),
        ({"uptakes": {"celsius": {"EX_ac_e": 1.0}}}, DataError, "no such covariate of numbers"),
        ({"model": "gone.xml"}, GraphError, "`fba_growth` is computed by a metabolic model that cannot be read here"),
    ],
)
def test_what_cannot_be_computed_says_why(config: dict[str, object], error: type[DglcellError], message: str) -> None:
    strains = Strains.from_names([["b0008"], []], covariates={"medium": ["own", "fructose"]})
    with pytest.raises(error, match=message):
        growth(strains, **config)


def test_the_column_is_a_covariate_and_says_how_it_was_made() -> None:
    computed = Computed.of(FbaConfig(processes=1), {}, CellConfig(model="textbook"))
    strains = Strains.from_names([["b0008"], ["b0720"]], phenotypes={"growth": [1.0, 0.5]})
    made = computed.add(strains, WORK)
    assert (made.covariates, made.computed) == ({"fba_growth": ()}, ("fba_growth",))
    assert made.provenance.parameters[COMPUTED]["fba_growth"]["model"] == "textbook"
    assert "textbook.xml.gz" in made.provenance.files
    assert made.sha256 != strains.sha256
    with pytest.raises(DataError, match="have a column 'fba_growth'"):
        computed.add(made, WORK)
    with pytest.raises(ConfigError, match=r"`data\.fba` needs a metabolic model"):
        Computed.of(FbaConfig(), {}, CellConfig())
