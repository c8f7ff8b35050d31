"""Genotypes: tables and lists of genes to predict, and the same from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dglcell.data.strains import Strains
from dglcell.errors import DglcellError, GenotypeError
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.runs.directory import RunDirectory
from tests.hostile.inputs import Input, cases

RUN = "RUN"
TABLE = ("predict", RUN, "in.csv", "-o", "out.csv")
GENES = ("predict", RUN, "--all-pairs", "--genes", "genes.txt", "-o", "out.parquet")

TABLES: dict[str, tuple[str | bytes, str]] = {
    "empty": (b"", "in.csv"),
    "a header alone": ("genes\n", "in.csv"),
    "no gene column": ("a,b\n1,2\n", "in.csv"),
    "both kinds of columns": ("genes,gene_1\nb0008,b0114\n", "in.csv"),
    "a gene column twice": ("genes,genes\nb0008,b0114\n", "in.csv"),
    "a numbered column twice": ("gene_1,gene_1\nb0008,b0114\n", "gene_1"),
    "another column twice": ("gene_1,note,note\nb0008,1,2\n", "note"),
    "superscripts for numbers": ("gene_²\nb0008\n", "in.csv"),
    "no gene": ("genes\n;;\n", "line 2"),
    "an unknown gene": ("genes\nb0008;nothing\n", "nothing"),
    "a number for a gene": ("genes\n1.5\n", "1.5"),
    "a gene twice": ("genes\nb0008;b0008\n", "b0008"),
    "a gene with nul": ("genes\nb00\0008\n", "in.csv"),
    "a gene with an escape": ("genes\n\x1b[31mb0008\n", "line 2"),
    "a short row": ("gene_1,gene_2\nb0008\n", "line 2"),
    "a long row": ("gene_1,gene_2\nb0008,b0114,b0115\n", "line 2"),
    "an open quote": ('genes\n"b0008\n', "in.csv"),
    "a cell without end": ("genes\n" + "b0008;" * 100_000 + "\n", "in.csv"),
    "not utf-8": (b"genes\n\xff\xfe\n", "in.csv"),
    "utf-16": ("genes\nb0008\n".encode("utf-16"), "in.csv"),
    "bytes": (bytes(range(256)), "in.csv"),
    "the column that will be written": ("genes,predicted_fitness\nb0008,1\n", "predicted_fitness"),
    "a long unknown gene": ("genes\n" + "x" * 100_000 + "\n", "line 2"),
    "a negative strength": ("genes\nb0008:0.5;b0114\nb0008:-0.5\n", "b0008:-0.5"),
    "a strength that is no number": ("gene_1,strength_1\nb0008,nan\n", "line 2"),
    "an infinite strength": ("gene_1,strength_1\nb0008,inf\n", "line 2"),
    "a strength below all": ("gene_1,strength_1\nb0008,1e-300\n", "line 2"),
    "a text for a strength": ("gene_1,strength_1\nb0008,=1+1\n", "=1+1"),
    "two strengths of a gene": ("genes\nb0008:0.5;b0008:0.6\n", "b0008"),
    "a strength without a gene": ("genes\n:0.5\n", "line 2"),
    "ten thousand strengths of a gene": ("genes\n" + "b0008:0.5;" * 10_000 + "\n", "b0008"),
    "more strengths than genes": ("genes,strengths\nb0008,0.5;0.5\n", "line 2"),
    "strengths of some gene columns": ("gene_1,gene_2,strength_2\nb0008,,\n", "strength_2"),
    "a thousand unknown genes": ("genes\n" + "".join(f"x{n}\n" for n in range(1_000)), "1,000 of 1,000"),
}

LISTS: dict[str, tuple[str | bytes, str]] = {
    "empty": (b"", "pairs"),
    "comments": ("# b0008\n", "pairs"),
    "one gene": ("b0008\n", "pairs"),
    "an unknown gene": ("b0008\nnothing\n", "nothing"),
    "a gene twice": ("b0008\nb0008\n", "b0008"),
    "two in a line": ("b0008 b0114\n", "b0008 b0114"),
    "not utf-8": (b"\xff\xfe\n", "genes.txt"),
    "a gene with nul": ("b0008\nb01\x0014\n", "genes.txt"),
}

COMMANDS: list[tuple[tuple[str, ...], str]] = [
    (("predict", RUN, "nowhere.csv", "-o", "out.csv"), "nowhere.csv"),
    (("predict", RUN, ".", "-o", "out.csv"), "'.'"),
    (("predict", RUN, "in.csv", "-o", "out.xlsx"), "out.xlsx"),
    (("predict", RUN, "in.csv", "-o", "nowhere/" + "x" * 300 + ".csv"), "xxx"),
    (("predict", RUN, "in.csv", "-o", "in.csv/out.csv"), "in.csv"),
    (("predict", RUN, "-o", "out.csv"), "predicted"),
    (("predict", RUN, "in.csv", "--all-pairs", "-o", "out.csv"), "in.csv"),
    (("predict", RUN, "--all-pairs", "--all-triples", "-o", "out.csv"), "--all-pairs"),
    (("predict", RUN, "in.csv", "--start", "3", "-o", "out.csv"), "--start"),
    (("predict", RUN, "--all-pairs", "--start", "99999999999999999999", "-o", "out.csv"), "--start"),
    (("predict", RUN, "--all-pairs", "--limit", "0", "-o", "out.csv"), "--limit"),
    (("predict", RUN, "--all-pairs", "--limit", "²", "-o", "out.csv"), "--limit"),
    (("predict", RUN, "--all-pairs", "--start", "-1", "-o", "out.csv"), "--start"),
    (("predict", RUN, "--all-pairs", "--strength", "0.5,", "-o", "out.csv"), "--strength"),
    (("predict", RUN, "--all-pairs", "--strength", "nan", "-o", "out.csv"), "nan"),
    (("predict", RUN, "--all-pairs", "--strength", "1e99", "-o", "out.csv"), "1e+99"),
    (("predict", RUN, "--all-pairs", "--strength", "-1,0.5", "-o", "out.csv"), "--strength"),
    (("predict", RUN, "--all-pairs", "--strength", "0.5,0.50", "-o", "out.csv"), "twice"),
    (("predict", RUN, "in.csv", "--strength", "0.5", "-o", "out.csv"), "--strength"),
    (("predict", RUN, "in.csv", "--condition", "medium", "-o", "out.csv"), "--condition"),
    (("predict", RUN, "in.csv", "--condition", "medium=LB", "-o", "out.csv"), "medium"),
    (("predict", RUN, "in.csv", "--batch-size", "nan", "-o", "out.csv"), "--batch-size"),
    (("predict", RUN, "in.csv", "--batch-size", "9" * 5_000, "-o", "out.csv"), "--batch-size"),
    (("predict", RUN, "in.csv", "--device", "tpu", "-o", "out.csv"), "tpu"),
    (("predict", RUN, "in.csv", "--device", "cpu:x", "-o", "out.csv"), "cpu:x"),
    (("predict", RUN, "in.csv", "--checkpoint", "../../etc/passwd", "-o", "out.csv"), "passwd"),
    (("predict", RUN, "in.csv", "--checkpoint", "x" * 300, "-o", "out.csv"), "xxx"),
]


def tables() -> Iterator[Input]:
    """Yield tables of genotypes."""
    for name, (content, says) in TABLES.items():
        yield Input(name, TABLE, says, {"in.csv": content})
    for name, (content, says) in LISTS.items():
        yield Input(f"list: {name}", GENES, says, {"genes.txt": content})
    for arguments, says in COMMANDS:
        yield Input(" ".join(arguments)[:60], arguments, says, {"in.csv": "genes\nb0008\n"})


@cases(tables())
def test_genotypes(hostile: Input, tiny_run: RunDirectory, driven: Callable[[Input], None]) -> None:
    arguments = tuple(str(tiny_run.path) if word == RUN else word for word in hostile.arguments)
    driven(Input(hostile.name, arguments, hostile.says, hostile.files))


@pytest.mark.parametrize(
    "strain",
    [[1.5], ["a"], ["1"], [None], [True], [float("nan")], [[1]], "12", 5, [-1], [99], [np.float64(1)], [2**70]],
    ids=repr,
)
def test_genotypes_from_python(strain: Any) -> None:
    with pytest.raises(GenotypeError, match="strain 1"):
        GenotypeBatch.from_lists([[0], strain], num_genes=10)


@pytest.mark.parametrize("genes", [[1.5], ["a"], [True], [None]], ids=repr)
def test_tables_of_strains_from_python(genes: list[Any]) -> None:
    with pytest.raises(DglcellError, match=r"strains: targets are no"):
        Strains(("a", "b"), np.array(genes), np.array([0, 1]))
