"""What nodes receive along the surviving edges, as a product that is not taken yet."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from dglcell.perturbation.states import DenseStates, States
from dglcell.perturbation.strain_sums import Message


class Received(States):
    """A product that a layer may take strain by strain; who reads it as a whole has it taken for all strains at once.

    Args:
        message: the product.
        source: states of the nodes that send.
        product: takes it for all strains, [M, B, H].
    """

    def __init__(self, message: Message, source: States, product: Callable[[], Tensor]) -> None:
        self.pending: tuple[Message, States] = message, source
        self.product = product

    @cached_property
    def _whole(self) -> DenseStates:
        return DenseStates(self.product())

    @property
    def dtype(self) -> torch.dtype:
        """See ``States.dtype``."""
        return self.pending[1].dtype

    def dense(self) -> Tensor:
        """See ``States.dense``."""
        return self._whole.dense()

    def rows(self, nodes: Tensor, strain: int) -> Tensor:
        """See ``States.rows``."""
        return self._whole.rows(nodes, strain)

    def softmax_pool(self, gate: States, keep_NB: Tensor) -> Tensor:
        """See ``States.softmax_pool``."""
        return self._whole.softmax_pool(gate, keep_NB)
