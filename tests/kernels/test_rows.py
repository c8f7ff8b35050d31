"""Products over single rows, compiled and in plain torch, against loops over single edges and dense matrices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dglcell.graph.resident import ResidentRelation
from dglcell.kernels import rows
from dglcell.kernels.rows import Pairs, add_rows, add_split, mark, pull, push, sum_strains
from dglcell.perturbation.row_index import RowIndex

EXACT = {"atol": 1e-12, "rtol": 1e-12}
WIDTHS = st.sampled_from([1, 3, 32, 64, 96])


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both forms of every function; the plain one expands a few edges at a time."""
    if request.param == "plain":
        monkeypatch.setattr(rows, "COMPILED_DEVICES", ())
        monkeypatch.setattr(rows, "EDGES_AT_ONCE", 7)


@pytest.fixture(autouse=True)
def same_threads_afterwards() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


class Case:
    """A random relation with multi-edges and hubs, and pairs at both of its ends."""

    def __init__(self, seed: int, *, weighted: bool, edges: int | None = None) -> None:
        rng = np.random.default_rng(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.N, self.M, self.B = (int(rng.integers(1, 9)) for _ in range(3))
        E = int(rng.integers(0, 60)) if edges is None else edges
        self.src, self.dst = rng.integers(0, self.N, E), rng.integers(0, self.M, E)
        self.weight = rng.normal(size=E) if weighted else np.ones(E)
        self.relation = ResidentRelation(
            ("gene", "random", "gene"),
            torch.as_tensor(self.src),
            torch.as_tensor(self.dst),
            self.N,
            self.M,
            torch.as_tensor(self.weight) if weighted else None,
        )
        share = float(rng.choice([0.0, 0.3, 1.0]))
        self.sources = RowIndex(torch.rand(self.B, self.N, generator=self.generator) < share)
        self.targets = RowIndex(torch.rand(self.B, self.M, generator=self.generator) < 0.6)

    def values(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=self.generator)

    def positions(self, number: int, count: int) -> Tensor:
        """[B, number] int32 rows below ``count``, some of them negative."""
        return torch.randint(-2, count, (self.B, number), generator=self.generator, dtype=torch.int32)

    def edges(self, reverse: bool) -> Iterator[tuple[int, int, float]]:
        """Own end, other end and weight of every edge."""
        ends = (self.src, self.dst) if reverse else (self.dst, self.src)
        return zip(ends[0].tolist(), ends[1].tolist(), self.weight.tolist(), strict=True)


def pairs(index: RowIndex) -> Pairs:
    return Pairs(index.nodes, index.strains)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), weighted=st.booleans())
def test_marks_are_at_the_ends_of_edges_and_where_they_were(seed: int, weighted: bool) -> None:
    case = Case(seed, weighted=weighted)
    mask_BM = torch.rand(case.B, case.M, generator=case.generator) < 0.2
    expected = mask_BM.clone()
    for strain, node in zip(case.sources.strains.tolist(), case.sources.nodes.tolist(), strict=True):
        for own, other, _ in case.edges(reverse=True):
            if own == node:
                expected[strain, other] = True
    mark(case.relation, pairs(case.sources), mask_BM)
    assert torch.equal(mask_BM, expected)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), weighted=st.booleans(), reverse=st.booleans(), width=WIDTHS)
def test_pull_adds_what_is_at_the_other_ends(seed: int, weighted: bool, reverse: bool, width: int) -> None:
    case = Case(seed, weighted=weighted)
    mine, others = (case.sources, case.N), (case.targets, case.M)
    index, number = (mine[0], others[1]) if reverse else (others[0], mine[1])
    source = case.values(11, width)
    table, out = case.positions(number, len(source)), case.values(len(index), width)
    expected = out.clone()
    for i, (node, strain) in enumerate(zip(index.nodes.tolist(), index.strains.tolist(), strict=True)):
        for own, other, weight in case.edges(reverse):
            row = int(table[strain, other])
            if own == node and row >= 0:
                expected[i] += weight * source[row]
    pull(case.relation, pairs(index), table, source, out, reverse=reverse)
    torch.testing.assert_close(out, expected, **EXACT)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    weighted=st.booleans(),
    reverse=st.booleans(),
    share=st.sampled_from([0.0, 0.5, 1.0]),
    width=WIDTHS,
)
def test_push_is_the_transpose_of_pull(seed: int, weighted: bool, reverse: bool, share: float, width: int) -> None:
    case = Case(seed, weighted=weighted)
    index = case.targets if reverse else case.sources
    shape, generator = (case.B, case.N if reverse else case.M), torch.Generator().manual_seed(seed)
    there = RowIndex(torch.rand(shape, generator=generator) < share)
    source, out = case.values(len(index) + 1, width), case.values(len(there), width)
    expected = out.clone()
    for i, (node, strain) in enumerate(zip(index.nodes.tolist(), index.strains.tolist(), strict=True)):
        for own, other, weight in case.edges(not reverse):
            row = int(there.table[strain, other])
            if own == node and row < len(there):
                expected[row] += weight * source[i]
    start = out.clone()
    push(case.relation, pairs(index), there.table, source, out, reverse=reverse)
    torch.testing.assert_close(out, expected, **EXACT)
    # ⟨push(x), y⟩ = ⟨x, pull(y)⟩
    y, back = case.values(*out.shape), torch.zeros(len(index), width, dtype=torch.float64)
    if len(there):
        pull(case.relation, pairs(index), there.positions(missing=-1), y, back, reverse=not reverse)
    torch.testing.assert_close(((out - start) * y).sum(), (source[:-1] * back).sum(), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_runs_of_eight_edges_with_and_without_missing_rows(weighted: bool) -> None:
    """One node with 45 in-edges: five runs of eight and a rest, missing rows in one of the runs and in the rest."""
    E = 45
    weight = torch.linspace(-1, 1, E, dtype=torch.float64) if weighted else None
    ends = torch.arange(E), torch.zeros(E, dtype=torch.int64)
    relation = ResidentRelation(("a", "b", "c"), *ends, E, 1, weight)
    source = torch.randn(E, 32, dtype=torch.float64)
    table = torch.arange(E, dtype=torch.int32).unsqueeze(0)
    table[0, [17, 18, 44]] = -1
    there = (table[0] >= 0).to(torch.float64) * (1 if weight is None else weight)
    out, zero = torch.zeros(1, 32, dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    pull(relation, Pairs(zero, zero), table, source, out, reverse=False)
    torch.testing.assert_close(out, there.unsqueeze(0) @ source, **EXACT)


def test_nothing_happens_without_pairs_or_edges() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    for case, who in ((Case(1, weighted=False), Pairs(none, none)), (Case(1, weighted=True, edges=0), None)):
        index = case.targets
        out = case.values(len(index), 3)
        before = out.clone()
        table = case.positions(case.N, 4)
        pull(case.relation, who or pairs(index), table, case.values(4, 3), out, reverse=False)
        push(
            case.relation,
            who or pairs(case.sources),
            index.table,
            case.values(len(case.sources), 3),
            out,
            reverse=False,
        )
        assert torch.equal(out, before)


@given(seed=st.integers(0, 2**32 - 1), number=st.integers(0, 40), width=WIDTHS)
def test_rows_are_added_where_they_belong(seed: int, number: int, width: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    where = torch.randint(0, 5, (number,), generator=generator)
    values = torch.randn(number, width, dtype=torch.float64, generator=generator)
    out = torch.randn(5, width, dtype=torch.float64, generator=generator)
    expected = out + torch.nn.functional.one_hot(where, 5).T.to(values.dtype) @ values
    split = torch.randint(0, 6, (), generator=generator).item()
    shared, rest = torch.zeros(split, width, dtype=torch.float64), out.clone()
    add_split(shared, rest, where, values)
    assert torch.equal(rest[:split], out[:split])
    rest[:split] += shared
    torch.testing.assert_close(rest, expected, **EXACT)
    add_rows(out, where, values)
    torch.testing.assert_close(out, expected, **EXACT)


@pytest.mark.parametrize("width", [64, 65, 129])
@pytest.mark.parametrize("threads", [1, 2])
def test_many_rows_are_added_in_every_column(width: int, threads: int) -> None:
    torch.set_num_threads(threads)
    where = torch.arange(rows.ROWS_WORTH_THREADS + 1) % 7
    values = torch.ones(len(where), width, dtype=torch.float64)
    out = torch.zeros(7, width, dtype=torch.float64)
    add_rows(out, where, values)
    assert torch.equal(out, torch.bincount(where).to(out.dtype).unsqueeze(1).expand(-1, width))


def test_rows_are_added_in_the_precision_of_the_result() -> None:
    for out_dtype, dtype in ((torch.float32, torch.bfloat16), (torch.float32, torch.float64)):
        out, shared = torch.zeros(2, 3, dtype=out_dtype), torch.zeros(1, 3, dtype=out_dtype)
        values = torch.full((300, 3), 1.0, dtype=dtype)
        add_rows(out, torch.ones(300, dtype=torch.int64), values)
        add_split(shared, out, torch.zeros(300, dtype=torch.int64), values)
        assert out.tolist() == [[0] * 3, [300] * 3]
        assert shared.tolist() == [[300] * 3]


@given(seed=st.integers(0, 2**32 - 1), width=WIDTHS)
def test_strains_are_summed(seed: int, width: int) -> None:
    case = Case(seed, weighted=False)
    source, out = case.values(9, width), case.values(case.N, width)
    table = case.positions(case.N, len(source))
    expected = out.clone()
    for strain in range(case.B):
        for node in range(case.N):
            if table[strain, node] >= 0:
                expected[node] += source[int(table[strain, node])]
    sum_strains(table, source, out)
    torch.testing.assert_close(out, expected, **EXACT)


def test_results_are_the_same_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "EDGES_AT_ONCE", 10_000)
    generator = torch.Generator().manual_seed(0)
    N, B, E, width = 300, 6, 5000, 64
    ends = torch.randint(0, N, (2, E), generator=generator)
    relation = ResidentRelation(("a", "b", "c"), *ends, N, N, torch.randn(E, generator=generator))
    index = RowIndex(torch.rand(B, N, generator=generator) < 0.5)
    every = RowIndex(torch.ones(B, N, dtype=torch.bool))
    source = torch.randn(len(every), width, generator=generator)

    def results() -> list[Tensor]:
        pulled, pushed = torch.zeros(len(index), width), torch.zeros(len(every), width)
        pull(relation, pairs(index), every.table, source, pulled, reverse=True)
        push(relation, pairs(index), every.table, source, pushed, reverse=False)
        added, summed = torch.zeros(11, width), torch.zeros(N, width)
        where = torch.randint(0, 11, (5000,), generator=torch.Generator().manual_seed(1))
        add_rows(added, where, source[where * 100])
        sum_strains(every.table, source, summed)
        return [pulled, pushed, added, summed]

    torch.set_num_threads(1)
    first = results()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for x, y in zip(first, results(), strict=True):
            assert torch.equal(x, y)
