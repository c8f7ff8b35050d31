"""Refusing every operation that would make the host wait for a GPU, wherever it is called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

SPECIAL = ("__bool__", "__int__", "__float__", "__index__", "__array__", "__contains__")
METHODS = ("item", "tolist", "numpy", "cpu", *SPECIAL)
UNIQUE = ("unique", "_unique2", "unique_dim", "unique_consecutive")
OPERATORS = ("_local_scalar_dense", "nonzero", "masked_select", *UNIQUE)
COPIES = (torch.tensor, torch.as_tensor, torch.from_numpy)
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")


class SyncError(AssertionError):
    """The host would have waited for the device."""


class RefuseMethods(TorchFunctionMode):
    """Refuse what brings values to the host, or from it; methods of ``exempt`` tensors, which live there, are not."""

    def __init__(self, exempt: set[int]) -> None:
        super().__init__()
        self.exempt = exempt

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in METHODS and id(args[0]) not in self.exempt:
            raise SyncError(f"Tensor.{name}")
        if func in COPIES:
            raise SyncError(f"torch.{name} copies from the host")
        return func(*args, **(kwargs or {}))


class RefuseOperators(TorchDispatchMode):
    """Refuse operators whose result's shape or value the host must know; count all others."""

    def __init__(self, exempt: set[int]) -> None:
        super().__init__()
        self.exempt, self.count = exempt, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        self.count += 1
        if name in OPERATORS and id(args[0]) not in self.exempt:
            raise SyncError(f"aten::{name}")
        if name in INDEXING and any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]):
            raise SyncError(f"aten::{name} by a mask")
        if name in ("_to_copy", "copy_") and _moves(args, kwargs):
            raise SyncError(f"aten::{name} from one device to another")
        if name == "repeat_interleave" and kwargs.get("output_size") is None:
            raise SyncError("aten::repeat_interleave without output_size")
        return func(*args, **kwargs)


def _moves(args: Any, kwargs: Any) -> bool:
    """Return whether a copy is from one device to another."""
    devices = {x.device for x in args if isinstance(x, torch.Tensor)}
    return len(devices | {kwargs.get("device") or args[0].device}) > 1


@contextmanager
def no_sync(exempt: set[int] | None = None) -> Iterator[RefuseOperators]:
    """Refuse whatever would wait for the device."""
    operators = RefuseOperators(exempt or set())
    with operators, RefuseMethods(exempt or set()):
        yield operators
