"""Vocabularies, aliases and the policy for names that do not map."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.errors import ConfigError, GraphError
from dglcell.graph.vocabulary import AliasTable, NameReport, Vocabulary, enforce_name_policy


@given(names=st.lists(st.text(min_size=1, max_size=5), max_size=20))
def test_indices_and_names_are_inverse(names: list[str]) -> None:
    vocabulary = Vocabulary.of(names)
    assert list(vocabulary.names) == sorted(set(names))
    assert [vocabulary.names[i] for i in vocabulary.indices(names)] == names


def test_unknown_names() -> None:
    vocabulary = Vocabulary.of(["YAL001C", "YAL002W"])
    assert vocabulary.indices(["YAL002W", "YAL003W"]).tolist() == [1, -1]
    with pytest.raises(GraphError, match=r"unknown name 'YAL001' \(close: YAL001C"):
        vocabulary.index("YAL001")


def test_the_hash_follows_the_names() -> None:
    assert Vocabulary.of(["b", "a"]).sha256 == Vocabulary.of(["a", "b"]).sha256
    assert Vocabulary.of(["a", "b"]).sha256 != Vocabulary.of(["ab"]).sha256


def test_aliases_resolve_unless_ambiguous_or_already_known() -> None:
    aliases = AliasTable({"TFC3": ("YAL001C",), "DUP1": ("YA", "YB"), "YAL002W": ("YX",)})
    known = Vocabulary.of(["YAL001C", "YAL002W"])
    assert aliases.resolve(["TFC3", "DUP1", "YAL002W", "other"], known) == (
        ["YAL001C", "DUP1", "YAL002W", "other"],
        ["DUP1"],
    )


def test_the_policy_refuses_drops_or_is_unknown() -> None:
    report = NameReport(10, unknown=("x", "y"), ambiguous=("z",), rows_dropped=3)
    message = r"table: names that .*\n  got:      2 unknown \(x, y\); 1 ambiguous \(z\)\n.*\n.*`key: drop`"
    with pytest.raises(GraphError, match=message):
        enforce_name_policy(report, "refuse", where="table", key="key")
    enforce_name_policy(report, "drop", where="table", key="key")
    enforce_name_policy(NameReport(10), "refuse", where="table", key="key")
    with pytest.raises(ConfigError, match=r"`key` is not a policy\n  got:      skip\n  expected: refuse or drop"):
        enforce_name_policy(report, "skip", where="table", key="key")
