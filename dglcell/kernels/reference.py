"""Gather, multiply, scatter: slow, takes E × C memory, obviously right."""

from __future__ import annotations

import torch
from torch import Tensor

from dglcell.graph.resident import ResidentRelation


def spmm_reference(relation: ResidentRelation, x_NC: Tensor, weighted: bool) -> Tensor:
    """[M, C] sums over in-edges in plain torch."""
    messages_EC = x_NC.index_select(0, relation.src)
    if weighted:
        assert relation.weight is not None
        messages_EC = messages_EC * relation.weight.to(x_NC.dtype).unsqueeze(1)
    out_MC = torch.zeros(relation.num_dst, x_NC.shape[1], dtype=x_NC.dtype, device=x_NC.device)
    return out_MC.index_add(0, relation.dst, messages_EC)
