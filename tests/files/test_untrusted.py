"""Reading files without trust, and checking them field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dglcell.errors import DataError
from dglcell.files.untrusted import (
    COUNT,
    NUMBER,
    SHA256,
    TEXT,
    Kind,
    UnreadableError,
    Wrong,
    find_wrong,
    list_of,
    mapping_of,
    optional,
    read_fields,
    read_json,
    read_npz,
    record,
)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "an empty file"),
        (b"{", "no JSON: Expecting property name"),
        (b"\xff\x00{", "no JSON: "),
        (b"[" * 100_000, "lists inside each other, too deep to be read"),
        (b"9" * 5000, "no JSON: Exceeds the limit"),
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
        ('{"size": -1}', {"size": COUNT}, "is damaged: `size` is wrong\n  got:      -1\n"),
    ],
)
def test_files_without_their_fields_are_refused(
    tmp_path: Path, content: str, fields: dict[str, Kind], said: str
) -> None:
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
        (TEXT, ["", "a"], [None, 1, ["a"]]),
        (COUNT, [0, 2**62], [-1, 1.0, True, 2**63, "1"]),
        (NUMBER, [1, -2.5, float("nan")], [True, "1", float("inf"), 10**400, None]),
        (SHA256, ["0" * 64], ["0" * 63, "A" * 64, 0]),
        (list_of(COUNT), [[], [1]], [[-1], {}, (1,)]),
        (mapping_of(COUNT), [{}, {"a": 1}], [{"a": -1}, {1: 1}, []]),
        (optional(TEXT), [None, "a"], [1]),
        (record({"a.b": COUNT}), [{"a": {"b": 1}}], [{"a": 1}, {}, []]),
    ],
)
def test_kinds(kind: Kind, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not kind.fits(value)] == []
    assert [value for value in bad if kind.fits(value)] == []


def test_the_first_wrong_field_is_found() -> None:
    fields = {"a": COUNT, "b.c": TEXT}
    assert find_wrong({"a": 1, "b": {"c": ""}, "more": 3}, fields) is None
    assert find_wrong({"a": 1, "b": []}, fields) == Wrong("`b.c` is missing", None, "text")
    assert find_wrong({"a": "x" * 100, "b": {}}, fields) == Wrong(
        "`a` is wrong", "'" + "x" * 59 + "…", "a whole number, 0 or more"
    )
    assert find_wrong({"a": [1, 2]}, fields) == Wrong("`a` is wrong", "a list of 2", "a whole number, 0 or more")
