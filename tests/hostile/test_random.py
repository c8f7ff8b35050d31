"""Configurations and tables that nobody would think of: each is taken or refused, and none ends in a traceback."""

from __future__ import annotations

import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from dglcell.config.experiment import KINDS, Config
from tests.examples import examples
from tests.hostile.inputs import EXPERIMENT, check_message, keys_of, status_of, tree, write

EXAMPLES = 8


KEYS = sorted(
    {*dict(keys_of(Config))}
    | {key for section, kinds in KINDS.items() for kind in kinds.values() for key, _ in keys_of(kind, f"{section}.")}
)

NUMBERS = st.one_of(
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from([0, -1, 1, 2**31, 2**32, 2**63, 2**64, 10**400, 1e-320]),
)
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["", "auto", "gene", "none", "null", "\0", "../x", "a\nb", "${seed}", "${x", "x" * 300, "²", "\ud800"]
    ),
    st.sampled_from(sorted({name for kinds in KINDS.values() for name in kinds})),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(TEXTS, st.integers()), inner, max_size=3)
    ),
    max_leaves=6,
)


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """``{"a.b": 1}`` as ``{"a": {"b": 1}}``; what a shorter key says is lost where a longer one goes on."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        *folders, last = key.split(".")
        place = result
        for folder in folders:
            if not isinstance(place.get(folder), dict):
                place[folder] = {}
            place = place[folder]
        place[last] = value
    return result


def outcome(*arguments: str, files: dict[str, str | bytes]) -> int:
    """Return the status of a command in a folder of its own; a refusal is one message, and writes nothing."""
    with tempfile.TemporaryDirectory() as name, chdir(name), redirect_stderr(StringIO()) as said:
        write(Path(name), files)
        before = tree(Path(name))
        with redirect_stdout(StringIO()):
            status = status_of(arguments)
        assert status in (0, 2)
        if status == 2:
            check_message(said.getvalue(), "")
            assert tree(Path(name)) == before
    return status


@examples(EXAMPLES)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=4), st.booleans())
@example({"optimizer.lr": 10**400}, True)
def test_configurations(values: dict[str, Any], valid_otherwise: bool) -> None:
    base = {"cell.model": "textbook"} if valid_otherwise else {}
    text = yaml.safe_dump(nested(base | values), allow_unicode=True)
    outcome("config", "validate", EXPERIMENT, files={EXPERIMENT: text.encode("utf-8", "surrogatepass")})


@examples(EXAMPLES)
@given(st.one_of(st.sampled_from(KEYS), st.text(max_size=8)), st.one_of(st.text(max_size=30), VALUES.map(str)))
@example("-\x1f", "")
def test_overrides(key: str, value: str) -> None:
    outcome("config", "validate", EXPERIMENT, f"{key}={value}", files={EXPERIMENT: "cell: {model: textbook}\n"})


SOURCE = """\
cell: {model: textbook}
data: {store: store, source: {name: csv, csv: {path: t.csv, genes: [a, b], phenotypes: {f: f}, missing: drop}}}
"""
CELLS = st.one_of(
    st.sampled_from(["", "b0001", "b0002", "NA", "0.5", "1e39", "inf", "nan", "-0", '"', '""', "a;b", "\0", "\r", "é"]),
    st.text(max_size=6),
)
ROWS = st.lists(st.lists(CELLS, min_size=1, max_size=5), max_size=6)
HEADERS = st.one_of(st.just(["a", "b", "f"]), st.permutations(["a", "b", "f", "x"]), st.lists(CELLS, max_size=4))


@examples(EXAMPLES)
@given(HEADERS, ROWS, st.sampled_from([",", ";", "\t"]), st.sampled_from(["\n", "\r\n", "\r"]))
def test_tables_of_cells(header: list[str], rows: list[list[str]], separator: str, end: str) -> None:
    text = end.join(separator.join(row) for row in [header, *rows])
    outcome("data", "build", EXPERIMENT, files={EXPERIMENT: SOURCE, "t.csv": text.encode("utf-8", "surrogatepass")})


@examples(EXAMPLES)
@given(st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(lambda end: b"a,b,f\nx,y,0.5\n" + end)))
def test_tables_of_bytes(content: bytes) -> None:
    outcome("data", "build", EXPERIMENT, files={EXPERIMENT: SOURCE, "t.csv": content})


@examples(EXAMPLES)
@given(st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(lambda end: b"a\tb\nx\ty\n" + end)))
def test_networks_of_bytes(content: bytes) -> None:
    config = "cell: {networks: {near: {path: t.tsv, columns: [a, b]}}}\n"
    outcome("graph", "describe", EXPERIMENT, files={EXPERIMENT: config, "t.tsv": content})
