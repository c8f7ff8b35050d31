"""The methods that are compared, by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dglcell.errors import ConfigError, MissingDependencyError
from dglcell.kernels.spmm import KERNELS
from dglcell.models.config import HeteroCellConfig
from dglcell.perturbation.perturb import STRATEGIES
from dglcell.profiling.bench.methods.dango import build_dango
from dglcell.profiling.bench.methods.method import Method, MethodSpec
from dglcell.profiling.bench.methods.ours import build_ours
from dglcell.profiling.bench.workload import Workload

BASE = "pyg_replicated"
"""What came before; all ratios are to it."""

WITHOUT_KERNEL = {"edge_subgraph": "dgl_edge_subgraph", "edge_mask": "edge_mask"}


def methods() -> dict[str, MethodSpec]:
    """All of them, the ones that came before first.

    - ``pyg_replicated``: B copies of the graph, a Boolean mask per copied edge, PyG's ``MessagePassing``, as its
      users ran it; with ``_kept_memory`` under the memory advice that all other methods get too (``dglcell.memory``:
      faster, and twice the memory); with ``_compiled`` its convolutions
      under torch.compile.
    - ``pyg_node_dim``: one edge list, states [N, B, H]; PyG gathers B · E · H messages.
    - ``pyg_spmm``: the same with ``EdgeIndex``, the best that PyG offers: a sparse product on [N, B · H].
    - ``dgl_edge_subgraph``: DGL, every strain's graph by itself.
    - ``edge_mask``, ``node_mask:KERNEL``, ``difference:KERNEL``, and ``auto`` where there is such a strategy.
    - ``node_mask_compiled`` and ``difference_compiled``, with ``torch.compile`` for layers, and the same with
      ``_bfloat16``, with differences in half precision.
    - ``dango``: another model, see `Dango`; with ``_dense`` as the project before computed it.
    """
    specs = [
        MethodSpec(BASE, partial(_build_pyg, form="replicated"), stock_memory=True),
        MethodSpec(f"{BASE}_kept_memory", partial(_build_pyg, form="replicated")),
        MethodSpec(f"{BASE}_compiled", partial(_build_pyg, form="replicated", compiled=True), compiled=True),
        MethodSpec("pyg_node_dim", partial(_build_pyg, form="node_dim")),
        MethodSpec("pyg_spmm", partial(_build_pyg, form="spmm")),
    ]
    for strategy in dict.fromkeys([*STRATEGIES, "auto"]):
        if not _is_strategy(strategy):
            continue
        for kernel in ("auto",) if strategy in (*WITHOUT_KERNEL, "auto") else ("auto", *KERNELS):
            name = WITHOUT_KERNEL.get(strategy) or ("auto" if strategy == "auto" else f"{strategy}:{kernel}")
            build = partial(build_ours, strategy=strategy, kernel=kernel)
            specs.append(MethodSpec(name, build, strategy=strategy, kernel=kernel))
    for strategy in ("node_mask", "difference"):
        for half in (False, True):
            build = partial(build_ours, strategy=strategy, kernel="auto", compiled=True, half=half)
            name = f"{strategy}_compiled{'_bfloat16' if half else ''}"
            specs.append(MethodSpec(name, build, strategy=strategy, kernel="auto", compiled=True))
    specs.append(MethodSpec("dango", build_dango, same_predictions=False))
    specs.append(MethodSpec("dango_dense", partial(build_dango, dense=True), same_predictions=False))
    return {spec.name: spec for spec in specs}


def choose_methods(names: Sequence[str]) -> list[MethodSpec]:
    """Methods by name, each once; ``all``, and a bare strategy for its kernel ``auto``.

    Raises:
        ConfigError: there is no such method.
    """
    known = methods()
    chosen: dict[str, MethodSpec] = {}
    for name in names:
        full = {"edge_subgraph": "dgl_edge_subgraph"}.get(name, name)
        full = full if full in known else f"{full}:auto"
        if name != "all" and full not in known:
            raise ConfigError("unknown method", got=name, expected=", ".join(["all", *known]), do="see `--methods`")
        chosen |= known if name == "all" else {full: known[full]}
    return list(chosen.values())


def _is_strategy(name: str) -> bool:
    try:
        HeteroCellConfig(strategy=name).validate()
    except ConfigError:
        return False
    return True


def _build_pyg(workload: Workload, device: str, *, form: str, compiled: bool = False) -> Method:
    try:
        from dglcell.profiling.bench.methods.pyg import build_pyg
    except ImportError as error:
        raise MissingDependencyError("install dglcell[bench]") from error
    return build_pyg(workload, device, form=form, compiled=compiled)
