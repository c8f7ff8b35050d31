"""The buffer of earlier strains against a list that forgets."""

from __future__ import annotations

import math
from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.losses.coupled import RowBuffer, Rows


def make_rows(first: int, labels: list[list[float]], requires_grad: bool = False) -> Rows:
    """Strains numbered from ``first``, told apart by their predictions."""
    target = torch.tensor(labels).view(len(labels), -1)
    number = torch.arange(first, first + len(labels), dtype=torch.float32).unsqueeze(1)
    prediction = number.expand(-1, target.shape[1]).clone().requires_grad_(requires_grad)
    return Rows(prediction, target, torch.cat([number, -number], dim=1))


LABEL = st.sampled_from([0.5, 1.5, math.nan])
BATCHES = st.lists(st.lists(st.tuples(LABEL, LABEL), min_size=1, max_size=5), min_size=1, max_size=6)


@settings(max_examples=60)
@given(batches=BATCHES, size=st.integers(1, 6))
def test_it_keeps_the_last_labelled_strains_in_order(batches: list[list[tuple[float, float]]], size: int) -> None:
    buffer, kept, number = RowBuffer(size), deque[int](maxlen=size), 0
    for labels in batches:
        rows = make_rows(number, [list(pair) for pair in labels], requires_grad=True)
        buffer.add(rows)
        kept.extend(number + i for i, pair in enumerate(labels) if not all(map(math.isnan, pair)))
        number += len(labels)
    labelled = [pair for labels in batches for pair in labels if not all(map(math.isnan, pair))]
    assert buffer.seen == len(labelled)
    rows = buffer.newest(None, like=rows)
    assert not rows.prediction.requires_grad
    there = rows.present.any(1)
    assert rows.prediction[there, 0].tolist() == list(kept)
    assert rows.embedding[there].tolist() == [[k, -k] for k in kept]
    # What is missing is in front.
    assert not there[: size - len(kept)].any()
    torch.testing.assert_close(rows.target[there], torch.tensor(labelled[-size:]).view(-1, 2), equal_nan=True)


def test_the_newest_are_the_last() -> None:
    buffer, rows = RowBuffer(4), make_rows(0, [[0.0], [1.0], [2.0], [3.0], [4.0]])
    buffer.add(rows)
    for count in range(6):
        few = buffer.newest(torch.tensor(float(count)), like=rows)
        assert few.target[few.present].tolist() == [1.0, 2.0, 3.0, 4.0][max(0, 4 - count) :]
        assert few.prediction.shape == (4, 1)


def test_before_anything_was_added_there_is_nothing() -> None:
    rows = make_rows(0, [[1.0]])
    assert len(RowBuffer(3).newest(None, like=rows).target) == 0
    none = RowBuffer(0)
    none.add(rows)
    assert none.seen == 1
    assert len(none.newest(None, like=rows).target) == 0


def test_it_is_saved_and_goes_on() -> None:
    one, other = RowBuffer(3), RowBuffer(3)
    one.add(make_rows(0, [[1.0], [math.nan], [2.0]]))
    assert set(one.state_dict()) == {"seen", "prediction", "target", "embedding"}
    other.load_state_dict(one.state_dict())
    for buffer in (one, other):
        buffer.add(make_rows(3, [[3.0], [4.0]]))
    for name, value in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, rtol=0, atol=0, equal_nan=True)
    assert other.prediction[:, 0].tolist() == [2, 3, 4]


def test_a_buffer_of_another_size_is_refused() -> None:
    one = RowBuffer(3)
    one.add(make_rows(0, [[1.0]]))
    with pytest.raises(RuntimeError, match="size mismatch for prediction"):
        RowBuffer(4).load_state_dict(one.state_dict())
    untouched = RowBuffer(4)
    untouched.load_state_dict(RowBuffer(3).state_dict())
    assert untouched.seen == 0
