"""Reading files without trust, and checking them field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dglcell.errors import DataError
from dglcell.files.untrusted import (
    Number,
    Sha256,
    UnreadableError,
    Whole,
    check_fields,
    read_fields,
    read_json,
    read_npz,
)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "an empty file"),
        (b"{", "no JSON: EOF while"),
        (b"\xff\x00{", "no JSON: "),
        (b"[" * 100_000, "no JSON: recursion limit"),
        (b"9" * 5000, "no JSON: number out of range"),
        (None, "No such file"),
    ],
)
def test_what_is_no_json(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnreadableError, match=reason):
        read_json(path)
    for read in (read_json, read_npz):
        with pytest.raises(UnreadableError, match="Is a directory"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("content", "fields", "said"),
    [
        ("{", {}, "is damaged\n  got:      no JSON"),
        ("[]", {}, "is damaged\n  got:      list\n  expected: a card\n  do:       mend it"),
        ('{"size": -1}', {"size": Whole}, "is damaged: `size` is wrong\n  got:      -1\n"),
    ],
)
def test_files_without_fields_are_refused(tmp_path: Path, content: str, fields: dict[str, Any], said: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(DataError) as refused:
        read_fields(path, fields, DataError, expected="a card", do="mend it")
    assert f"'{path}' {said}" in str(refused.value)
    path.write_text('{"size": 3}')
    assert read_fields(path, fields, DataError, expected="a card", do="mend it") == {"size": 3}


def test_arrays_and_text_come_back_and_objects_are_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"ä": [1, None]}), encoding="utf-8")
    assert read_json(tmp_path / "x.json") == {"ä": [1, None]}
    np.savez(tmp_path / "x.npz", a=np.arange(3), b=np.array("text"))
    found = read_npz(tmp_path / "x.npz")
    assert (found["a"].tolist(), str(found["b"])) == ([0, 1, 2], "text")
    np.savez(tmp_path / "x.npz", a=np.array([{}], dtype=object))
    with pytest.raises(UnreadableError) as error:
        read_npz(tmp_path / "x.npz")
    assert str(error.value) == "Python objects, which are not loaded", "numpy's advice to load them is not repeated"


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (str, ["", "a"], [None, 1, ["a"]]),
        (Whole, [0, 2**62], [-1, 1.0, True, 2**63, "1"]),
        (Number, [1, -2.5, float("nan")], [True, "1", float("inf"), 10**400, None]),
        (Sha256, ["0" * 64], ["0" * 63, "A" * 64, 0, "0" * 64 + "\n"]),
        (dict[str, list[Whole]], [{}, {"a": [1]}], [{"a": [-1]}, {"a": (1,)}, {1: []}, []]),
    ],
)
def test_nothing_is_converted_to_the_type_of_a_field(kind: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        check_fields({"a": {"b": value}}, {"a.b": kind})
    for value in bad:
        with pytest.raises(UnreadableError, match=r"`a\.b` is wrong"):
            check_fields({"a": {"b": value}}, {"a.b": kind})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"a": 1, "b": []}, ("`b.c` is missing", None, "a value")),
        ({"a": "x" * 100, "b": {}}, ("`a` is wrong", "'" + "x" * 59 + "…", "a valid integer")),
        ({"a": [1, 2]}, ("`a` is wrong", "a list", "a valid integer")),
    ],
)
def test_the_first_wrong_field_is_named(content: Any, said: tuple[str, ...]) -> None:
    with pytest.raises(UnreadableError) as error:
        check_fields(content, {"a": Whole, "b.c": str})
    assert (str(error.value), error.value.got, error.value.expected) == said
