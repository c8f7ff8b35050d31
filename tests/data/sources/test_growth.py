"""Which reactions a gene set blocks, and genetic interactions from growth."""

from __future__ import annotations

import itertools
import logging
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

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
from dglcell.data.sources.fba_growth import FbaGrowth
from dglcell.data.sources.growth import RESOLUTION, KnockoutRules, lost_rules, snap, trigenic, unpacked
from dglcell.data.sources.insilico import load_insilico
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError, DglcellError, GraphError
from dglcell.graph.cell import CellConfig
from dglcell.graph.metabolism import enzyme_complexes
from tests.examples import examples

# Blocked reactions of many strains against cobra's evaluation of one rule at a time.


GENES = [f"g{i}" for i in range(6)]


def join(parts: list[str], word: str) -> str:
    return "(" + f" {word} ".join(parts) + ")"


rules = st.recursive(
    st.sampled_from(GENES),
    lambda inner: st.builds(join, st.lists(inner, min_size=2, max_size=4), st.sampled_from(["and", "or"])),
    max_leaves=10,
)


def model_of(texts: list[str]) -> Model:
    model = Model("random")
    model.genes += [Gene(name) for name in GENES]
    for i, text in enumerate(texts):
        reaction = Reaction(f"r{i}")
        model.add_reactions([reaction])
        reaction.gene_reaction_rule = text
    return model


@examples(30)
@given(st.lists(rules, min_size=1, max_size=8), st.permutations(range(6)), st.integers(0, 2**18 - 1), st.integers(0, 6))
def test_a_reaction_is_as_strong_as_its_best_complex(
    texts: list[str], genes: list[int], numbers: int, size: int
) -> None:
    model, activities = model_of(texts), (0.0, 0.3, 0.5, 1.0)
    rules = replace(KnockoutRules.of(model), activities=activities)
    chosen = [numbers // 4**place % 4 for place in range(size)]
    alleles = np.array([[4 * gene + number for gene, number in zip(genes[:size], chosen, strict=True)]], dtype=np.int32)
    left = {rules.genes[gene]: activities[number] for gene, number in zip(genes[:size], chosen, strict=True)}
    (lost,) = lost_rules(rules.left_of(alleles), 3)
    found = rules.codes(*unpacked(lost))
    expected = {}
    for i, reaction in enumerate(model.reactions):
        activity = max(min(left.get(gene, 1.0) for gene in complex_) for complex_ in enzyme_complexes(reaction.gpr))
        if activity < 1:
            expected[i] = activity
    assert {int(code) % len(texts): activities[code // len(texts)] for code in found} == expected


# The mathematics of genetic interactions.


fitness = st.floats(0, 1.2)


def array(*values: float) -> tuple[np.ndarray, ...]:
    return tuple(np.array([value]) for value in values)


@given(st.lists(fitness, min_size=7, max_size=7), st.permutations(range(3)))
def test_tau_does_not_depend_on_the_order_of_genes(values: list[float], order: list[int]) -> None:
    singles, abc = values[:3], values[6]
    pairs = dict(zip(map(frozenset, itertools.combinations(range(3), 2)), values[3:6], strict=True))

    def tau(i: int, j: int, k: int) -> np.ndarray:
        two = array(*(pairs[frozenset(pair)] for pair in ((i, j), (i, k), (j, k))))
        return trigenic(*array(abc), array(singles[i], singles[j], singles[k]), two)  # type: ignore[arg-type]

    assert tau(*order) == pytest.approx(tau(0, 1, 2), abs=1e-12)


def test_snap_moves_only_what_is_close() -> None:
    values = np.array([0.9 * RESOLUTION, 1.1 * RESOLUTION, 1 - 0.9 * RESOLUTION, 0.5, np.nan])
    snapped = snap(values, 0.0, 1.0)
    np.testing.assert_array_equal(snapped, [0.0, values[1], 1.0, 0.5, np.nan])


MEDIA = {"own": {}, "fructose": {"EX_glc__D_e": 0.0, "EX_fru_e": 10.0}}


def growth(strains: Strains, folder: Path, shard: tuple[int, int] = (0, 1), **config: object) -> NDArray[np.float32]:
    config = {"model": "textbook", "media": MEDIA, "processes": 1, **config}
    return FbaGrowth(FbaConfig(**config)).compute(strains, Work(None, folder, shard))  # type: ignore[arg-type]


def own_growth() -> float:
    return float(load_model("textbook").slim_optimize())


@pytest.fixture(scope="module")
def screen() -> Strains:
    options = {"pairs": "300", "triples": "60", "activities": [0.3, 0.0, 0.05, 0.7], "media": MEDIA, "processes": 1}
    return load_insilico(InSilicoConfig(**options))  # type: ignore[arg-type]


def test_it_is_what_the_screen_computes(screen: Strains, tmp_path: Path) -> None:
    found = growth(screen, tmp_path)
    np.testing.assert_allclose(found / own_growth(), screen.phenotypes["fitness"], atol=1e-6)
    assert len(np.unique(found)) > 50


def test_shards_fill_what_one_build_finds(screen: Strains, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for shard in range(3):
        growth(screen, tmp_path / "shards", (shard, 3))
    caplog.set_level(logging.INFO)
    caplog.clear()
    found = growth(screen, tmp_path / "shards")
    assert "linear programs" not in caplog.text  # nothing is left to solve
    np.testing.assert_array_equal(found, growth(screen, tmp_path / "whole"))


def test_names_of_genes_and_genes_that_the_model_lacks(tmp_path: Path) -> None:
    strains = Strains.from_names([["pfkA"], ["b3916"], ["mystery"], ["B2779"], []])
    found = growth(strains, tmp_path, media={}) / own_growth()
    model = load_model("textbook")
    model.genes.get_by_id("b2779").knock_out()
    eno = model.slim_optimize() / own_growth()
    np.testing.assert_allclose(found, [found[1], found[1], 1.0, eno, 1.0], atol=1e-6)


def test_media_may_be_numbers(tmp_path: Path) -> None:
    covariates = {"acetate": [0.0, 1.0, 0.5], "lactate": [1.0, 1.0, 0.0]}
    strains = Strains.from_names([[], [], []], covariates=covariates)
    uptakes = {"acetate": {"EX_ac_e": 20.0}, "lactate": {"EX_lac__D_e": 10.0}}
    found = growth(strains, tmp_path, media={}, base={"EX_glc__D_e": 0.0}, uptakes=uptakes)
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
def test_what_cannot_be_computed_says_why(
    tmp_path: Path, config: dict[str, object], error: type[DglcellError], message: str
) -> None:
    strains = Strains.from_names([["b0008"], []], covariates={"medium": ["own", "fructose"]})
    with pytest.raises(error, match=message):
        growth(strains, tmp_path, **config)


def test_the_column_is_a_covariate_and_says_how_it_was_made(tmp_path: Path) -> None:
    computed = Computed.of(FbaConfig(processes=1), {}, CellConfig(model="textbook"))
    strains = Strains.from_names([["b0008"], ["b0720"]], phenotypes={"growth": [1.0, 0.5]})
    made = computed.add(strains, Work(None, tmp_path))
    assert (made.covariates, made.computed) == ({"fba_growth": ()}, ("fba_growth",))
    assert made.provenance.parameters[COMPUTED]["fba_growth"]["model"] == "textbook"
    assert "textbook.xml.gz" in made.provenance.files
    assert made.sha256 != strains.sha256
    with pytest.raises(DataError, match="have a column 'fba_growth'"):
        computed.add(made, Work(None, tmp_path))
    with pytest.raises(ConfigError, match=r"`data\.fba` needs a metabolic model"):
        Computed.of(FbaConfig(), {}, CellConfig())


KILLED = """\
import sys
from pathlib import Path
from dglcell.data.sources import Work, fba_growth
from dglcell.data.sources.config import FbaConfig, InSilicoConfig
from dglcell.data.sources.insilico import load_insilico
fba_growth.FLUSH_SECONDS = 0.0
strains = load_insilico(InSilicoConfig(pairs="400", triples="none", processes=1))
fba_growth.FbaGrowth(FbaConfig(model="textbook", processes=1)).compute(strains, Work(None, Path(sys.argv[1])))
"""


def test_a_killed_build_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)]) as process:
        while len([*tmp_path.glob("*/*.json")]) < 20 and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    strains = load_insilico(InSilicoConfig(pairs="400", triples="none", processes=1))
    (broken := next(tmp_path.glob("*/*.json"))).write_bytes(b"not whole")
    found = growth(strains, tmp_path, media={})
    assert f"'{broken}' cannot be read" in caplog.text
    np.testing.assert_allclose(found / own_growth(), strains.phenotypes["fitness"], atol=1e-6)
