"""The in-silico screen of weakened genes and growth media, against plain cobra."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from cobra import Model
from cobra.flux_analysis import flux_variability_analysis
from cobra.io import load_model

from dglcell.data.columns import CONDITION
from dglcell.data.sources import fba
from dglcell.data.sources.config import InSilicoConfig
from dglcell.data.sources.fba import FluxSolver
from dglcell.data.sources.insilico import load_insilico
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError
from dglcell.graph.metabolism import enzyme_complexes

MEDIA: dict[str, dict[str, float]] = {
    "own": {},
    "anaerobic": {"EX_o2_e": 0.0},
    "pyruvate": {"EX_glc__D_e": 0.0, "EX_pyr_e": 20.0},
}
STRENGTHS = [0.3, 0.0, 0.05, 1.0, 0.7]


def screen(**options: object) -> Strains:
    return load_insilico(InSilicoConfig(**{"processes": 1, "triples": "none", **options}))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def table() -> Strains:
    return screen(pairs="300", triples="60", strengths=STRENGTHS, media=MEDIA)


def listed(table: Strains) -> Iterator[tuple[dict[str, float], str, float]]:
    """Yield gene → strength, medium and fitness of every strain."""
    (column,) = (column for column in table.columns if column.kind == CONDITION)
    left = table.left()
    for s, (a, b) in enumerate(zip(table.offsets[:-1], table.offsets[1:], strict=True)):
        genes = [table.names[gene] for gene in table.targets[a:b]]
        medium = column.categories[int(table.columns[column][s])]
        yield dict(zip(genes, left[a:b].tolist(), strict=True)), medium, float(table.phenotypes["fitness"][s])


def ranges(model: Model) -> dict[str, tuple[float, float]]:
    """Return the largest backward and forward flux of each reaction that the wild type can need."""
    optimal, at_all = (flux_variability_analysis(model, fraction_of_optimum=part, processes=1) for part in (1.0, 0.0))
    return {
        reaction.id: tuple(
            next((flux for frame in (optimal, at_all) if (flux := sign * frame.loc[reaction.id, column]) > 1e-7), 0.0)
            for column, sign in (("minimum", -1), ("maximum", 1))
        )
        for reaction in model.reactions
    }


def weaken(model: Model, left: Mapping[str, float], needed: Mapping[str, tuple[float, float]]) -> None:
    for reaction in model.reactions:
        complexes = enzyme_complexes(reaction.gpr)
        strength = max((min(left.get(gene, 1.0) for gene in genes) for genes in complexes), default=1.0)
        if strength < 1:
            backward, forward = needed[reaction.id]
            reaction.bounds = (
                max(reaction.lower_bound, -strength * backward),
                min(reaction.upper_bound, strength * forward),
            )


def test_fitness_equals_cobra_with_bounds_set_by_hand(table: Strains) -> None:
    model = load_model("textbook")
    model.tolerance = 1e-9
    reference = model.slim_optimize()
    needed = {}
    for name, changes in MEDIA.items():
        with model:
            model.medium = {**model.medium, **changes}
            needed[name] = ranges(model)
    strains = list(listed(table))
    fitness = np.array([value for *_, value in strains])
    between = (fitness > 0) & (fitness < 1)
    rng = np.random.default_rng(0)
    sample = {*rng.choice(len(strains), 80), *rng.choice(np.flatnonzero(between), 80)}
    for s in sample:
        left, medium, found = strains[s]
        with model:
            model.medium = {**model.medium, **MEDIA[medium]}
            weaken(model, left, needed[medium])
            expected = model.slim_optimize(error_value=0.0) / reference
        assert found == pytest.approx(expected, abs=2e-6), (left, medium)


def test_the_table_has_every_strain_in_every_medium_and_the_wild_type(table: Strains) -> None:
    strains = list(listed(table))
    third = len(strains) // 3
    assert third == 1 + 137 * 5 + 300 + 60
    assert [medium for _, medium, _ in strains[::third]] == list(MEDIA)
    by_medium = [[left for left, _, _ in strains[i * third : (i + 1) * third]] for i in range(3)]
    assert by_medium[0] == by_medium[1] == by_medium[2]
    assert by_medium[0][0] == {}
    singles = {(gene, round(strength, 6)) for left in by_medium[0][1:686] for gene, strength in left.items()}
    assert singles == {(gene, strength) for gene in table.names for strength in STRENGTHS}
    drawn = [strength for left in by_medium[0][686:] for strength in left.values()]
    assert np.bincount(np.searchsorted(sorted(STRENGTHS), np.round(drawn, 6))).min() > 100
    assert list(table.phenotypes) == ["fitness"]
    counts = table.provenance.counts
    assert counts["strains"] == len(table)
    assert [counts[kind] for kind in ("wild_types", "singles", "pairs", "triples")] == [3, 3 * 685, 900, 180]
    ways = ("linear_programs", "same_blocked_reactions", "subset_optimum")
    assert sum(counts[way] for way in ways) > len(table)


def test_the_wild_type_grows_as_in_cobra(table: Strains) -> None:
    model = load_model("textbook")
    reference = model.slim_optimize()
    wild = {medium: fitness for left, medium, fitness in listed(table) if not left}
    for name, changes in MEDIA.items():
        with model:
            model.medium = {**model.medium, **changes}
            growth = model.slim_optimize()
        assert wild[name] == pytest.approx(growth / reference, abs=1e-6)
        assert table.provenance.parameters["growth_in_media"][name] == pytest.approx(growth, abs=1e-6)
    assert wild["own"] == 1


def test_strength_0_is_the_deletion_and_1_the_wild_type(table: Strains) -> None:
    deletions = screen(pairs="100")
    zero = screen(pairs="100", strengths=[0.0])
    assert np.array_equal(zero.targets, deletions.targets)
    assert np.array_equal(zero.phenotypes["fitness"], deletions.phenotypes["fitness"])
    assert zero.strengths is not None
    assert not zero.strengths.any()
    alone = {
        gene: fitness
        for [gene], fitness in zip(deletions.genotypes[:137], deletions.phenotypes["fitness"][:137], strict=True)
    }
    wild = {medium: fitness for left, medium, fitness in listed(table) if not left}
    checked = 0
    for left, medium, fitness in listed(table):
        if set(left.values()) == {1.0}:
            assert fitness == wild[medium]
        elif len(left) == 1 and medium == "own" and 0.0 in left.values():
            assert fitness == alone[next(iter(left))]
            checked += 1
    assert checked == 137
    assert (screen(pairs="20", strengths=[1.0]).phenotypes["fitness"] == 1).all()


def test_media_with_deletions_only() -> None:
    table = screen(pairs="50", media=MEDIA)
    plain = screen(pairs="50")
    assert table.strengths is None
    third = len(table) // 3
    assert np.array_equal(table.phenotypes["fitness"][1:third], plain.phenotypes["fitness"])
    assert np.array_equal(table.targets[: len(plain.targets)], plain.targets)
    assert list(table.phenotypes) == ["fitness"]


def test_result_does_not_depend_on_the_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fba, "PROBE", 5)
    monkeypatch.setattr(fba, "WORTHWHILE_SECONDS", 0.0)
    options = {"pairs": "40", "strengths": [0.0, 0.4], "media": {"anaerobic": MEDIA["anaerobic"]}}
    assert screen(**options).sha256 == screen(**options, processes=2).sha256


def test_what_the_solver_cannot_tell_is_left_out_and_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = load_model("textbook")
    lost = model.reactions.index("ENO")  # of one gene, which has no other reaction
    largest = FluxSolver._largest
    monkeypatch.setattr(
        FluxSolver, "_largest", lambda of, lp, j, sign: float("nan") if j == lost else largest(of, lp, j, sign)
    )
    with caplog.at_level(logging.WARNING, logger="dglcell"):
        table = screen(pairs="none", strengths=[0.0, 0.5])
    assert not np.isnan(table.phenotypes["fitness"]).any()
    assert len(table) == 2 * 137 - 1 == table.provenance.counts["strains"]
    of_eno = [gene for gene, left in zip(table.genotypes, table.left().tolist(), strict=True) if left == 0.5]
    assert ["b2779"] in table.genotypes
    assert ["b2779"] not in of_eno
    assert table.provenance.counts["failures"] == 1
    assert "the solver found no capacity of ENO: strains that weaken them have no fitness" in caplog.text
    assert (
        "0 linear programs timed out and 1 failed; left out, because its fitness is not known: 1 strain" in caplog.text
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strengths": [0.0, 1.5]}, r"`data.source.insilico.strengths` holds a number that is no strength of a screen"),
        ({"strengths": [-0.5]}, r"no strength of a screen\n  got:      -0.5\n.*0 for a deletion, or 1e-06 to 1"),
        ({"strengths": [1e-9]}, "no strength of a screen"),
        ({"strengths": [0.5, 0.5]}, "`data.source.insilico.strengths` lists 0.5 twice"),
        ({"strengths": list(np.linspace(0.1, 1, 101))}, "strengths` lists too many"),
        ({"media": {"m": {"EX_o2_e": -2.0}}}, "`data.source.insilico.media.m.EX_o2_e` is no uptake"),
        ({"media": {"m": {"EX_o2": 2.0}}}, "`data.source.insilico.media.m` names no exchange reaction"),
        (
            {"pairs": "all", "media": {f"m{i}": {} for i in range(2_200)}},
            r"`data.source.insilico` asks for too many strains\n.*20,796,600 over all media",
        ),
    ],
)
def test_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        screen(**options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"EX_glc__D_e": 0.0}, "the wild type in medium 'm' has no optimal growth"),
        ({"EX_nh4_e": 0.0}, r"the wild type in medium 'm' does not grow\n(.*\n)*.*leave the medium out"),
    ],
)
def test_a_medium_without_growth_is_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        screen(pairs="none", media={"m": changes})
