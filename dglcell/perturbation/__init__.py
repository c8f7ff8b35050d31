"""Define the strains' graphs, and the strategies that compute on them."""

from dglcell.errors import ConfigError

STRATEGIES = ("edge_subgraph", "edge_mask", "node_mask", "difference")  # ``auto`` takes one of them
DGL_STRATEGIES = ("edge_subgraph", "edge_mask")  # they leave products to DGL, whose build must support the device


def no_edges(what: str, strategy: str, able: tuple[str, ...] = DGL_STRATEGIES) -> ConfigError:
    """Return the error that a strategy has no single edges, or is none of the able ones."""
    needs = "a strategy that has single edges" if len(able) > 1 else "another strategy"
    return ConfigError(
        f"{what} needs {needs}",
        got=strategy,
        expected=f"auto, {' or '.join(able)}",
        do=f'take `strategy="{able[-1]}"`, in an experiment `model.strategy: {able[-1]}`; it needs DGL: '
        "`pip install dgl==1.1.3`, with Python 3.11 on Linux",
    )
