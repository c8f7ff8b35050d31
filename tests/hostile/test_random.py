"""Configurations and tables that nobody would think of: each is taken or refused, and none ends in a traceback."""

from __future__ import annotations

import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.hostile.inputs import EXPERIMENT, MINIMAL, check_message, status_of, tree, write

KEYS = ("seed", "optimizer.lr", "model.hidden", "model.pool", "data.phenotypes", "split.fractions", "cell.networks")
VALUES = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=20), st.lists(st.none(), max_size=3))
SOURCE = """\
cell: {model: textbook}
data: {store: store, source: {name: csv, csv: {path: t.csv, genes: [a, b], phenotypes: {f: f}, missing: drop}}}
"""
NETWORK = "cell: {networks: {near: {path: t.csv, columns: [a, b]}}}\n"


def outcome(*arguments: str, files: dict[str, str | bytes]) -> None:
    """Give a command in a folder of its own; a refusal is one message, and writes nothing."""
    with tempfile.TemporaryDirectory() as name, chdir(name), redirect_stderr(StringIO()) as said:
        write(Path(name), files)
        before = tree(Path(name))
        with redirect_stdout(StringIO()):
            status = status_of(arguments)
        assert status in (0, 2)
        if status == 2:
            check_message(said.getvalue(), "")
            assert tree(Path(name)) == before


@examples(8)
@given(st.one_of(st.sampled_from(KEYS), st.text(max_size=8)), st.one_of(st.text(max_size=30), VALUES.map(str)))
def test_overrides(key: str, value: str) -> None:
    outcome("config", "validate", EXPERIMENT, f"{key}={value}", files={EXPERIMENT: MINIMAL})


@examples(8)
@given(st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(lambda end: b"a,b,f\nx,y,0.5\n" + end)))
def test_tables_of_bytes(content: bytes) -> None:
    outcome("data", "build", EXPERIMENT, files={EXPERIMENT: SOURCE, "t.csv": content})


@examples(8)
@given(st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(lambda end: b"a\tb\nx\ty\n" + end)))
def test_networks_of_bytes(content: bytes) -> None:
    outcome("graph", "describe", EXPERIMENT, files={EXPERIMENT: NETWORK, "t.csv": content})
