"""What can be asked of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dglcell.errors import ConfigError


@dataclass(frozen=True)
class BenchOptions:
    """What was asked for; empty tuples stand for the headline's, or with ``grid`` the grid's values.

    Attributes:
        command: as typed.
        graph: ``generated`` or ``real``.
        raw: folder of raw files.
        metabolism: add the metabolic model to a real cell graph.
        symmetrise: store undirected pairs in both directions.
        scale: of a generated cell graph.
        seed: of graph, strains and weights.
        memory_limit: bytes; None for what is available.
        resume: keep the rows that ``output`` has.
        in_process: run everything in this process instead of in forks of it.
    """

    command: str
    graph: str = "generated"
    raw: str | None = None
    metabolism: bool = False
    symmetrise: bool = False
    scale: float = 1.0
    seed: int = 0
    methods: tuple[str, ...] = ()
    conv: tuple[str, ...] = ()
    batch: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()
    layers: tuple[int, ...] = ()
    deletions: tuple[int, ...] = (3,)
    grid: bool = False
    products: bool = False
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = None
    seconds_per_row: float = 10.0
    memory_limit: int | None = None
    output: Path | None = None
    resume: bool = False
    in_process: bool = False

    def validate(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            ConfigError: naming them.
        """
        if self.resume and self.output is None:
            raise ConfigError("`--resume` needs a file to go on with", do="pass `--output FILE`")
        if self.resume and self.products:
            raise ConfigError("`--resume` continues steps, not `--products`", do="leave one of them out")
        if self.metabolism and self.graph != "real":
            raise ConfigError("`--metabolism` needs real genes", got=f"--graph {self.graph}", do="pass `--graph real`")
