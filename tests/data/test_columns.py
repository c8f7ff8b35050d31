from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.data.blocks import HEADER, Block, ContentHash, Layout, unpack
from dglcell.errors import DataError

LAYOUT = Layout(names=70_000, phenotypes=("a", "b"), p_values=("b",))


def block(counts: list[int], layout: Layout = LAYOUT, seed: int = 0) -> Block:
    rng = np.random.default_rng(seed)
    genes = rng.integers(0, layout.names, sum(counts)).astype(layout.gene_dtype)
    labels = rng.normal(size=(len(layout.labels), len(counts))).astype(np.float32)
    return Block(np.array(counts, np.uint8), genes, labels)


def assert_equal(found: Block, expected: Block) -> None:
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_array_equal(found.genes, expected.genes)
    np.testing.assert_array_equal(found.labels, expected.labels)


@given(
    counts=st.lists(st.integers(0, 255), min_size=1, max_size=20),
    genes=st.sampled_from([300, 65_535, 65_536]),
    phenotypes=st.integers(1, 3),
)
def test_a_packed_block_comes_back(counts: list[int], genes: int, phenotypes: int) -> None:
    layout = Layout(genes, tuple(f"p{i}" for i in range(phenotypes)), sds=("p0",))
    expected = block(counts, layout)
    assert_equal(unpack(expected.pack(), layout, "here"), expected)


def test_indices_take_two_bytes_while_they_fit() -> None:
    assert Layout(65_535, ("a",)).gene_dtype.itemsize == 2
    assert Layout(65_536, ("a",)).gene_dtype.itemsize == 4


def test_counts_are_stored_only_where_they_differ() -> None:
    layout = Layout(100, ("a",))
    assert len(block([3, 3, 3, 3], layout).pack()) == HEADER.size + 4 * (4 + 3 * 2)
    assert len(block([3, 3, 2, 3], layout).pack()) == HEADER.size + 4 * 4 + 11 * 2 + 4


@settings(max_examples=200)
@given(st.data())
def test_any_changed_or_missing_byte_is_found_and_the_block_named(data: st.DataObject) -> None:
    value = bytearray(block([1, 2, 3]).pack())
    position = data.draw(st.integers(0, len(value) - 1))
    if data.draw(st.booleans()):
        value[position] ^= data.draw(st.integers(1, 255))
    else:
        del value[position:]
    with pytest.raises(DataError, match=r"^store 's': block 3 of 9 is damaged: its checksum .*\n.*build it anew"):
        unpack(bytes(value), LAYOUT, "store 's': block 3 of 9")


def test_a_sound_block_of_another_layout_is_refused() -> None:
    with pytest.raises(DataError, match="is damaged"):
        unpack(block([1, 2, 3]).pack(), Layout(100, ("a",)), "here")


@given(cuts=st.lists(st.integers(0, 12), max_size=4))
def test_the_content_hash_does_not_depend_on_the_blocks(cuts: list[int]) -> None:
    whole = block([1, 2, 3] * 4)

    def digest(blocks: list[Block]) -> str:
        running = ContentHash(LAYOUT, "vocabulary", {"a": "1/h"})
        for part in blocks:
            running.update(part)
        return running.hexdigest()

    ends = sorted({0, 12, *cuts})
    assert digest([whole.slice(a, b) for a, b in pairwise(ends)]) == digest([whole])


def test_the_content_hash_changes_with_everything_it_covers() -> None:
    def digest(change: Block, layout: Layout = LAYOUT, vocabulary: str = "v", unit: str = "u") -> str:
        running = ContentHash(layout, vocabulary, {"a": unit})
        running.update(change)
        return running.hexdigest()

    base = block([1, 2, 3])
    labels = base.labels.copy()
    labels[2, 1] += 1
    variants = {
        digest(base),
        digest(Block(np.array([2, 1, 3], np.uint8), base.genes, base.labels)),
        digest(Block(base.counts, base.genes[::-1], base.labels)),
        digest(Block(base.counts, base.genes, labels)),
        digest(base, Layout(70_000, ("a", "c"), p_values=("c",))),
        digest(base, Layout(70_000, ("a", "b"), sds=("b",))),
        digest(base, Layout(70_000, ("a", "b"), replicates=("b",))),
        digest(base, vocabulary="w"),
        digest(base, unit="1/h"),
    }
    assert len(variants) == 9
