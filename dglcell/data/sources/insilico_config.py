"""Configuration of the in-silico screen; apart from it, so that reading a configuration needs no cobra."""

from __future__ import annotations

from dataclasses import dataclass

from dglcell.errors import ConfigError

DESIGNS = ("subsets", "query")


@dataclass
class InSilicoConfig:
    """An in-silico screen.

    Attributes:
        model: a model that cobra ships (``textbook``, ``iJO1366``) or a model file.
        design: ``subsets``: all or sampled gene sets. ``query``: query pairs crossed with an array, as in the
            trigenic laboratory screens.
        singles: list the single deletions of every gene.
        pairs: ``all``, ``none`` or a number to sample. In the query design ``all`` lists the digenic controls.
        triples: ``all``, ``none`` or a number to sample. The query design lists all its crosses.
        query_pairs: number of viable query pairs of the query design.
        array_size: number of array genes of the query design; all genes if null.
        seed: of every random choice.
        tolerance: of the solver; 1e-9 is needed for yeast-GEM.
        time_limit: seconds for one linear program; a strain that needs longer has no fitness.
        processes: 0 for as many as there are CPUs; the result does not depend on it.
    """

    model: str = "textbook"
    design: str = "subsets"
    singles: bool = True
    pairs: str = "all"
    triples: str = "all"
    query_pairs: int | None = None
    array_size: int | None = None
    seed: int = 0
    tolerance: float = 1e-9
    time_limit: float = 60.0
    processes: int = 0

    def validate(self) -> None:
        """Check the keys against each other.

        Raises:
            ConfigError: a key is wrong.
        """
        if self.design not in DESIGNS:
            raise ConfigError(
                "`data.source.insilico.design` is not a design", got=self.design, expected=" or ".join(DESIGNS)
            )
        for key, amount in (("pairs", self.pairs), ("triples", self.triples)):
            if amount not in ("all", "none") and not (str(amount).isdecimal() and int(amount) > 0):
                raise ConfigError(
                    f"`data.source.insilico.{key}` is not an amount",
                    got=amount,
                    expected="all, none or a positive number",
                )
        for key, value in (("tolerance", self.tolerance), ("time_limit", self.time_limit)):
            if not value > 0:
                raise ConfigError(f"`data.source.insilico.{key}` must be positive", got=value)
        if self.processes < 0:
            raise ConfigError("`data.source.insilico.processes` is negative", got=self.processes, expected="0 or more")
        if self.design == "query":
            self._validate_query()
        else:
            self._validate_subsets()

    def _validate_query(self) -> None:
        if self.query_pairs is None or self.query_pairs < 1:
            raise ConfigError(
                "the query design needs `data.source.insilico.query_pairs`",
                got=self.query_pairs,
                expected="a positive number",
            )
        if self.array_size is not None and self.array_size < 1:
            raise ConfigError("`data.source.insilico.array_size` is not positive", got=self.array_size)
        if self.pairs not in ("all", "none") or self.triples != "all":
            raise ConfigError(
                "the query design lists all its crosses",
                got=f"pairs: {self.pairs}, triples: {self.triples}",
                expected="triples: all, and pairs: all (with digenic controls) or none",
            )

    def _validate_subsets(self) -> None:
        for key, value in (("query_pairs", self.query_pairs), ("array_size", self.array_size)):
            if value is not None:
                raise ConfigError(
                    f"`data.source.insilico.{key}` belongs to the query design",
                    got=value,
                    do="set `data.source.insilico.design: query`, or leave the key out",
                )
        if not self.singles and self.pairs == self.triples == "none":
            raise ConfigError(
                "the in-silico screen has no strains",
                expected="singles, pairs or triples",
                do="set `data.source.insilico.singles: true` or give `pairs` or `triples`",
            )
