"""Gene networks, gene sets and metabolic models that an experiment can name, one module per provider."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass, replace
from typing import Any

from dglcell.errors import ConfigError
from dglcell.graph.catalogue import interactions, models, regulation, sgd, string
from dglcell.graph.catalogue.entry import GeneSetSource, ModelSource, NetworkSource, Origin
from dglcell.graph.network_config import NetworkConfig
from dglcell.graph.raw_file import RawFile

__all__ = [
    "GENE_SETS",
    "MODELS",
    "NETWORKS",
    "GeneSetSource",
    "ModelSource",
    "NamedTable",
    "NetworkSource",
    "Origin",
    "named_table",
    "network_source",
]

NETWORKS: dict[str, NetworkSource] = {
    **string.NETWORKS,
    **sgd.NETWORKS,
    **regulation.NETWORKS,
    **interactions.NETWORKS,
}
GENE_SETS: dict[str, GeneSetSource] = dict(sgd.GENE_SETS)
MODELS: dict[str, ModelSource] = dict(models.MODELS)

_DEFAULTS = NetworkConfig()


def network_source(name: str, key: str) -> NetworkSource:
    """The network called ``name``.

    Args:
        name: as the configuration has it.
        key: dotted path of the configuration key, for the message.

    Raises:
        ConfigError: the catalogue has no such network.
    """
    if name not in NETWORKS:
        close = difflib.get_close_matches(name, NETWORKS, n=3, cutoff=0.4)
        raise ConfigError(
            f"`{key}` names no network of the catalogue",
            got=name,
            expected="one of " + ", ".join(NETWORKS),
            do=f"did you mean {' or '.join(close)}?" if close else "see `dglcell graph list`",
        )
    return NETWORKS[name]


@dataclass(frozen=True)
class NamedTable:
    """A network as an experiment has it, with what its source adds.

    Attributes:
        config: what the columns mean, complete.
        file: where the table is and what is known of it.
        source: the catalogue's entry, if there is one.
    """

    config: NetworkConfig
    file: RawFile
    source: NetworkSource | None = None

    def provenance(self) -> dict[str, Any]:
        """Who made it; nothing of tables that are not in the catalogue."""
        if self.source is None:
            return {}
        return {"source": self.config.source, **self.source.origin.provenance(self.source.file)}


def named_table(config: NetworkConfig, key: str) -> NamedTable:
    """A network with every key that is left at its default filled in from its source.

    A weight or relation column of one's own replaces the source's channels, and the other way round. With a path of
    one's own the source's hash is not expected.

    Args:
        config: of one network.
        key: its dotted path, for messages.

    Raises:
        ConfigError: the catalogue has no such network.
    """
    sha256 = config.sha256.lower() if config.sha256 else None
    if not config.source:
        return NamedTable(config, RawFile(config.path, sha256=sha256))
    source = network_source(config.source, f"{key}.source")
    own = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if getattr(config, field.name) != getattr(_DEFAULTS, field.name)
    }
    table, file = source.table, source.file
    if own.keys() & {"weight", "relation_column"}:
        table = replace(table, channels=[])
    if "channels" in own:
        table = replace(table, weight=None, relation_column=None)
    if config.path:
        file = RawFile(config.path, sha256=sha256)
    elif sha256:
        file = replace(file, sha256=sha256, size=None)
    return NamedTable(replace(table, **{**own, "path": file.path, "sha256": file.sha256}), file, source)
