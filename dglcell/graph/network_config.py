"""What an experiment says about a network: an edge table, and what its columns mean."""

from __future__ import annotations

from dataclasses import dataclass, field

from dglcell.errors import ConfigError
from dglcell.graph.network_table import SEPARATORS
from dglcell.graph.vocabulary import UNKNOWN_POLICIES

PAIRS, GROUPS, MATRIX = "pairs", "groups", "matrix"
LAYOUTS = (PAIRS, GROUPS, MATRIX)

MATRIX_COLUMNS = ("row", "column")
"""What `columns` may name in a matrix: the names at the left of its rows, and those above its columns."""


@dataclass
class NetworkConfig:
    """One edge table; the key it stands under is its name, and the relation's if there is only one.

    With `source`, every key that is left at its default is filled in from the catalogue (`dglcell graph list`).
    """

    source: str = ""  # network of the catalogue, e.g. string12_0
    path: str = ""  # text table, plain or .gz: absolute, or relative to the working or the raw folder
    columns: list[str] = field(default_factory=list)  # source and target column: names, or positions from 0
    separator: str = "auto"  # auto , ; tab, or space (any run of blanks)
    header: bool | None = None  # first line names the columns; null: it does if a column is given by name
    quotes: bool | None = None  # fields may stand in double quotes; null: they may
    layout: str = ""  # pairs; groups: columns gene, group; matrix: an edge per cell that is not 0; pairs where empty
    where: dict[str, str] = field(default_factory=dict)  # column → value; other rows are left out
    weight: str | None = None  # column of edge weights
    channels: list[str] = field(default_factory=list)  # score columns: one relation each, `name_column`
    relation_column: str | None = None  # its values split the table into relations, `name_value`
    min_weight: float | None = None  # keep rows of at least this weight; null: all, of channels those above 0
    use_weights: bool = False  # weights become edge weights; otherwise they only decide which rows are kept
    directed: bool | None = None  # first column acts on the second; null: it does not
    symmetrise: bool | None = None  # undirected pairs give both directions; null: as the cell says
    self_loops: bool | None = None  # add a self-loop to every gene that has none; null: as the cell says
    strip_prefix: str = ""  # removed from the start of every name, e.g. "4932." for STRING
    unknown: str | None = None  # rows with names that the cell's genes lack: refuse or drop; null: as the cell says
    sha256: str | None = None  # expected hash of the file

    def validate(self, key: str) -> None:
        """Check the keys against each other, once those of `source` are filled in.

        Args:
            key: dotted path of this table in the configuration.

        Raises:
            ConfigError: naming the key.
        """
        if not self.path:
            raise ConfigError(
                f"`{key}.path` is not set",
                expected="the path of an edge table",
                do=f"or name a network of the catalogue in `{key}.source`; `dglcell graph list` shows them",
            )
        if len(self.columns) != 2:
            raise ConfigError(
                f"`{key}.columns` must name two columns",
                got=list(self.columns),
                expected="names from the header, or positions such as ['0', '1']",
            )
        if self.separator not in SEPARATORS:
            choices = ", ".join(repr(mark) for mark in SEPARATORS)
            raise ConfigError(f"`{key}.separator` is unknown", got=repr(self.separator), expected=choices)
        if self.unknown is not None and self.unknown not in UNKNOWN_POLICIES:
            expected = " or ".join(UNKNOWN_POLICIES)
            raise ConfigError(f"`{key}.unknown` is not a policy", got=self.unknown, expected=expected)
        self._validate_layout(key)
        self._validate_relations(key)
        if self.header is None and all(column.isdigit() for column in self.requested_columns()):
            raise ConfigError(
                f"`{key}.header` must be set when all columns are given by position",
                expected="true if the first line names the columns, false if it holds data",
            )

    def _validate_layout(self, key: str) -> None:
        if self.layout and self.layout not in LAYOUTS:
            raise ConfigError(f"`{key}.layout` is unknown", got=self.layout, expected=", ".join(LAYOUTS))
        if self.layout in ("", PAIRS):
            return
        for name in ("weight", "channels", "relation_column", *(("where", "header") if self.layout == MATRIX else ())):
            if getattr(self, name):
                raise ConfigError(f"`{key}.{name}` does not apply to `layout: {self.layout}`", got=getattr(self, name))
        if self.layout == MATRIX and sorted(self.columns) != sorted(MATRIX_COLUMNS):
            raise ConfigError(
                f"`{key}.columns` of a matrix",
                got=list(self.columns),
                expected="[row, column]: the names at the left act on those above; or [column, row]",
            )

    def _validate_relations(self, key: str) -> None:
        if self.channels and (self.relation_column or self.weight):
            raise ConfigError(
                f"`{key}.channels` excludes `weight` and `relation_column`",
                do="give either score columns, or one weight column",
            )
        weighted = bool(self.weight or self.channels)
        for name, value in (("min_weight", self.min_weight is not None), ("use_weights", self.use_weights)):
            if value and not weighted:
                raise ConfigError(
                    f"`{key}.{name}` needs weights", expected="`weight` or `channels` naming their columns"
                )

    def requested_columns(self) -> list[str]:
        """Every column that will be read."""
        single = [column for column in (self.weight, self.relation_column) if column]
        return [*self.columns, *self.channels, *single, *self.where]
