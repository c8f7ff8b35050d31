"""The options of ``dglcell bench``."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dglcell.cli.arguments import add_raw, positive, positive_float

if TYPE_CHECKING:
    from dglcell.profiling.bench.options import BenchOptions

BENCH_HELP = "time a training step of this package and of what came before, after checking that they agree"

BENCH_EPILOG = """\
All methods run on the same cell graph, strains and weights, on a CPU each in a fork of this one process; before
anything is timed, their predictions and all gradients are compared in float64. Ratios are to `pyg_replicated`: PyTorch
Geometric on B copies of the cell graph with a mask on every edge, which needs `pip install dglcell[bench]`.

  dglcell bench                                    headline: a generated cell graph of yeast size
  dglcell bench --graph real --raw DIR             public yeast networks
  dglcell bench --batch 8 28 --hidden 64 --layers 3 --conv gin --methods pyg_replicated node_mask auto
  dglcell bench --grid --output grid.json --resume everything, to be interrupted and continued
  dglcell bench --products --batch 28              the sparse products of every kernel
  dglcell bench conf/quickstart.yaml               an experiment's own cell graph, model and strains

A method that runs out of memory is a row that says so.
"""


def add_bench_options(parser: argparse.ArgumentParser) -> None:
    """What to measure on, what to vary, and how."""
    parser.add_argument("experiment", nargs="?", type=Path, metavar="FILE", help="an experiment to measure on")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of the experiment")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the same as FILE")
    add_raw(parser)
    graph = parser.add_argument_group("cell graph")
    graph.add_argument("--graph", choices=("generated", "real"), default="generated", help="(default: generated)")
    graph.add_argument("--symmetrise", action="store_true", help="store undirected pairs in both directions")
    graph.add_argument("--metabolism", action="store_true", help="with --graph real: add reactions and metabolites")
    graph.add_argument(
        "--scale", type=positive_float, default=1.0, help="of the number of generated genes (default: 1)"
    )
    graph.add_argument("--seed", type=int, default=0, help="of graph, strains and weights (default: 0)")
    vary = parser.add_argument_group("what is varied")
    vary.add_argument("--methods", nargs="+", metavar="NAME", help="or `all`; an unknown name lists all")
    vary.add_argument("--batch", nargs="+", type=positive, metavar="N", help="strains per step (default: 8 28)")
    vary.add_argument("--hidden", nargs="+", type=positive, metavar="N", help="width (default: 64)")
    vary.add_argument("--layers", nargs="+", type=positive, metavar="N", help="rounds (default: 2 3)")
    vary.add_argument("--conv", nargs="+", choices=("gin", "sage"), help="convolutions (default: gin)")
    vary.add_argument("--deletions", nargs="+", type=positive, default=[3], metavar="N", help="genes (default: 3)")
    vary.add_argument("--grid", action="store_true", help="all methods, and all values of what is not given")
    vary.add_argument("--products", action="store_true", help="sparse products instead of training steps")
    how = parser.add_argument_group("how")
    how.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    how.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="(default: float32)")
    how.add_argument("--threads", type=positive, metavar="N", help="of torch (default: torch's own choice)")
    how.add_argument("--seconds-per-row", type=positive_float, default=10.0, metavar="S", help="budget (default: 10)")
    how.add_argument("--memory-limit", type=positive_float, metavar="GB", help="per method (default: what is free)")
    how.add_argument("--output", type=Path, metavar="JSON", help="write environment and rows here, row by row")
    how.add_argument("--resume", action="store_true", help="keep the rows that --output has already")
    how.add_argument("--in-process", action="store_true", help="no forks; the first crash is the end")


def bench_options(options: argparse.Namespace) -> BenchOptions:
    """As the benchmark wants them."""
    from dglcell.profiling.bench.options import BenchOptions

    given: dict[str, Any] = {}
    for field in dataclasses.fields(BenchOptions):
        value = getattr(options, field.name)
        given[field.name] = tuple(value or ()) if isinstance(field.default, tuple) else value
    if options.memory_limit is not None:
        given["memory_limit"] = int(options.memory_limit * 1e9)
    return BenchOptions(**given)
