"""What the kernel ridge on lost reactions and the medium sees, and how it is compared."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.new_media import EXPERIMENT, _ahead, kernel_ridge, lost_shares, only_deletions, ways
from dglcell.config.read import load_config
from dglcell.data.columns import MEDIUM
from dglcell.graph.schema import REACTION
from dglcell.training.prepare import Prepared, prepare


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Single genes at two strengths, in ten media."""
    keys = ["data.source.insilico.pairs=none", "data.source.insilico.strengths=[0, 0.3]"]
    return prepare(load_config(EXPERIMENT, [*keys, f"paths.data={tmp_path_factory.mktemp('data')}"]), command="tests")


def test_what_strains_lose_of_reactions(prepared: Prepared) -> None:
    lost, strains = lost_shares(prepared).toarray(), prepared.dataset.numpy()
    names = ways(prepared.cell.vocabularies[REACTION].names)[0]
    media, genes, strengths = strains.shown(MEDIUM), [list(strain) for strain in strains.genotypes], strains.strengths
    assert strengths is not None

    def strain(of: list[str], medium: str, strength: float = 0.0) -> NDArray[np.floating]:
        chosen = [
            i
            for i in range(len(strains))
            if genes[i] == of and media[i] == medium and (not of or np.isclose(strengths[strains.offsets[i]], strength))
        ]
        found: NDArray[np.floating] = lost[chosen[0]]
        return found

    uptake = names.index("EX_fru_e-")
    assert strain([], "glucose")[uptake] == 1
    assert strain([], "fructose")[uptake] == 0
    synthase = names.index("CS+")
    assert strain(["b0720"], "glucose")[synthase] == 1
    assert strain(["b0720"], "glucose", 0.3)[synthase] == pytest.approx(0.7)
    assert strain([], "glucose")[synthase] == 0
    deletions = only_deletions(strains)
    assert deletions.sum() == 10 * (1 + 137)
    assert deletions[[i for i in range(len(strains)) if not genes[i]]].all()


def test_the_kernel_ridge_tells_strains_of_a_new_medium_apart(prepared: Prepared) -> None:
    labels = prepared.dataset.labels[:, :1].double().numpy()
    found = kernel_ridge(prepared, labels)
    assert np.corrcoef(found[:, 0], labels[prepared.parts["test"], 0])[0, 1] > 0.3


def test_leads_are_taken_medium_by_medium() -> None:
    of_media: list[dict[str, dict[str, float | None]]] = [
        {"model": {"pearson": a}, "null": {"pearson": b}, "constant": {"pearson": None}, f"seed {a}": {"pearson": a}}
        for a, b in ((1.0, 0.5), (0.9, 0.7))
    ]
    found = _ahead(of_media)
    assert found.keys() == {"model", "null"}
    assert found["null"]["mean"] == pytest.approx(0.6)
    assert found["null"]["ahead"][0] == pytest.approx(0.35)
    assert "ahead" not in found["model"]
