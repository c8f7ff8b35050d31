"""Self-attention among the relations of every row, for compiled code.

Nine relations with heads of sixteen features make matrices so small that torch's batched products take most of the
time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class RelationAttentionCode:
    """``dglcell.nn.relation_attention.RelationAttention``.

    Attributes:
        heads: A.
        embedding: [K, H].
        project: to queries, keys and values side by side.
        out: after the heads.
    """

    heads: int
    embedding: Tensor
    project: nn.Linear
    out: nn.Linear

    @property
    def parameters(self) -> list[Tensor]:
        """See ``dglcell.kernels.mix.MixCode``."""
        return [self.embedding, self.project.weight, self.project.bias, self.out.weight, self.out.bias]

    def pack(self, dtype: torch.dtype) -> Any:
        """See ``MixCode.pack``: a relation's embedding is projected once for all rows."""
        from dglcell.kernels.relation_attention_numba import Weights

        tensors = self.project.weight, self.project(self.embedding), self.out.weight, self.out.bias
        return Weights(*(x.detach().contiguous() for x in tensors))

    def unpack(self, of_packed: Any) -> list[Tensor]:
        """See ``MixCode.unpack``."""
        of, embedding, weight = of_packed, self.embedding.detach(), self.project.weight.detach()
        return [of.bias @ weight, of.project + of.bias.T @ embedding, of.bias.sum(0), of.out, of.out_bias]

    def forward(self, blas: int, packed: Any, h: Any, number: int, out: Any) -> None:
        """See ``MixCode.forward``."""
        from dglcell.kernels import relation_attention_numba

        relation_attention_numba.forward(blas, self.heads, packed, h, number, out)

    def backward(self, blas: int, packed: Any, h: Any, number: int, grad: Any, of_packed: Any, of_h: Any) -> None:
        """See ``MixCode.backward``."""
        from dglcell.kernels import relation_attention_numba

        relation_attention_numba.backward(blas, self.heads, packed, h, number, grad, of_packed, of_h)
