"""Tables of what can be read, of what each split shows, and of what became of the original system's keys."""

from __future__ import annotations

from pathlib import Path

from dglcell.config.read import original_keys
from dglcell.data.config import KINDS
from dglcell.data.sources import list_sources
from dglcell.graph.catalogue import GENE_SETS, MODELS, NETWORKS
from site_extension.markdown import code, table


def pages(root: Path) -> dict[str, str]:
    """Fragments that guides include."""
    strains = [
        (code(source.name), source.description, source.size, source.citation, source.licence)
        for source in list_sources()
    ]
    files = [(name, "network", entry.file) for name, entry in NETWORKS.items()]
    files += [(name, "gene set", entry.file) for name, entry in GENE_SETS.items()]
    files += [(name, "model", file) for name, file in MODELS.items()]
    catalogue = [(code(name), kind, file.description, file.citation, file.licence) for name, kind, file in files]
    splits = [(code(kind), sentence) for kind, sentence in KINDS.items()]
    names, reasons = original_keys()
    renamed, dropped = (
        [(code(key), code(name)) for key, name in names.items()],
        [(code(k), why) for k, why in reasons.items()],
    )
    return {
        "parts/sources.md": table(("name", "content", "size", "publication", "licence"), strains),
        "parts/catalogue.md": table(("name", "kind", "content", "publication", "licence"), catalogue),
        "parts/splits.md": table(("`split.kind`", "what the test part shows"), splits),
        "parts/renamed.md": table(("key of the original", "key here"), renamed),
        "parts/dropped.md": table(("key of the original", "why there is none here"), dropped),
    }
