"""Values that have exactly the types that they should have, against OmegaConf."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from dglcell.config.exact import InexactError, exact
from tests.examples import examples


@dataclass
class Part:
    """A section inside another one."""

    size: int
    share: float = 0.5
    kind: Literal["a", "b"] = "a"


@dataclass
class Section:
    """Keys of every form that configurations have."""

    name: str = ""
    rate: float | None = None
    on: bool = False
    counts: list[int] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    part: Part | None = None
    words: int | str = "auto"


PART = st.fixed_dictionaries({"size": st.integers()}, optional={"share": st.floats(allow_nan=False) | st.just(3)})
SECTION = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text("abc 1-$", max_size=5),
        "rate": st.none() | st.floats(allow_nan=False) | st.integers(-5, 5),
        "on": st.booleans(),
        "counts": st.lists(st.integers(), max_size=3),
        "parts": st.dictionaries(st.text("xyz", min_size=1), PART, max_size=2),
        "part": st.none() | PART,
        "words": st.integers() | st.sampled_from(["auto", "1"]),
    },
)


@examples(60)
@given(SECTION)
def test_what_is_exact_is_what_omegaconf_makes_of_it(value: dict[str, Any]) -> None:
    made = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Section), value))
    assert exact(Section, value) == made
    assert repr(exact(Section, value)) == repr(made)  # 3 is not 3.0


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, "3"),
        (int, True),
        (int, 3.0),
        (bool, 1),
        (str, 3),
        (float, "1"),
        (float, False),
        (int | None, "x"),
        (int | str, 2.5),
        (list[int], (1, 2)),
        (list[int], ["1"]),
        (dict[str, int], {1: 1}),
        (dict[str, int], [1]),
        (Literal["a", "b"], "c"),
        (Literal[1], True),
        (Part, None),
        (Part, {}),
        (Part, {"size": "3"}),
        (Part, {"size": 3, "other": 1}),
        (Section, {"parts": {"x": {"size": None}}}),
        (complex, 1j),
    ],
)
def test_what_has_to_be_converted_or_refused_is_left_to_omegaconf(kind: Any, value: Any) -> None:
    with pytest.raises(InexactError):
        exact(kind, value)
