"""Which strains are the same for a model."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.strains import Strains
from dglcell.prediction.conditions import seen_by
from dglcell.prediction.measured import are_known, identities
from dglcell.training.checkpoint import Trained
from tests.examples import examples
from tests.tiny import seeing_conditions

STRAINS = st.lists(
    st.tuples(
        st.lists(st.sampled_from("abc"), max_size=3, unique=True),
        st.lists(st.sampled_from([0.0, 0.3, 1.0, 1.5]), min_size=3, max_size=3),
        st.sampled_from(["glucose", "glycerol", "xylose"]),
        st.sampled_from([30.0, 37.0, -0.0, 0.0]),
    ),
    min_size=1,
    max_size=8,
)


def table(rows: list[tuple[list[str], list[float], str, float]], weakened: bool) -> Strains:
    genes, strengths, media, warmth = zip(*rows, strict=True)
    pairs = [dict(zip(names, left, strict=False)) for names, left in zip(genes, strengths, strict=True)]
    changed = pairs if weakened else genes
    return Strains.from_names(changed, conditions={"medium": media, "temperature": warmth, "batch": range(len(rows))})


def plainly(strains: Strains, trained: Trained) -> list[Hashable]:
    """Return what makes each strain another one: its genes, their strengths and the conditions that a model sees."""
    left = [of if isinstance(of, dict) else dict.fromkeys(of, 0.0) for of in strains.changes]
    changes = [frozenset(item for item in of.items() if item[1] != 1) for of in left]
    return list(zip(changes, *(strains.shown(name).tolist() for name in seen_by(trained)), strict=True))


@given(first=STRAINS, second=STRAINS, weakened=st.booleans())
@examples(25)
def test_keys_are_equal_where_genes_strengths_and_seen_conditions_are(
    trained: Trained, first: list, second: list, weakened: bool
) -> None:
    trained = seeing_conditions(trained)
    tables = table(first, True), table(second, weakened)
    keys = np.concatenate([identities(one, trained) for one in tables])
    plain = [identity for one in tables for identity in plainly(one, trained)]
    assert (keys[:, None] == keys).tolist() == [[a == b for a in plain] for b in plain]
    known, own = np.sort(keys[: len(first)]), plain[: len(first)]
    assert are_known(tables[1], trained, known).tolist() == [one in own for one in plain[len(first) :]]
    assert not are_known(tables[1], trained, known[:0]).any()
