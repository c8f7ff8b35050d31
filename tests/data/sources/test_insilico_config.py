"""What the in-silico configuration refuses."""

from __future__ import annotations

import pytest

from dglcell.data.sources.config import InSilicoConfig
from dglcell.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"design": "array"}, "`data.source.insilico.design` is not a design"),
        ({"pairs": "some"}, r"`data.source.insilico.pairs` is not an amount\n.*some\n.*all, none or a positive number"),
        ({"triples": "0"}, "`data.source.insilico.triples` is not an amount"),
        ({"tolerance": 0.0}, "`data.source.insilico.tolerance` must be positive"),
        ({"time_limit": -1.0}, "`data.source.insilico.time_limit` must be positive"),
        ({"processes": -1}, "`data.source.insilico.processes` is negative"),
        ({"query_pairs": 3}, "`data.source.insilico.query_pairs` belongs to the query design"),
        ({"design": "query"}, "the query design needs `data.source.insilico.query_pairs`"),
        ({"design": "query", "query_pairs": 2, "array_size": 0}, "`data.source.insilico.array_size` is not positive"),
        ({"design": "query", "query_pairs": 2, "pairs": "10"}, "the query design lists all its crosses"),
        ({"singles": False, "pairs": "none", "triples": "none"}, "the in-silico screen has no strains"),
    ],
)
def test_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        InSilicoConfig(**options).validate()  # type: ignore[arg-type]


def test_defaults_are_valid() -> None:
    InSilicoConfig().validate()
    InSilicoConfig(design="query", query_pairs=2).validate()
