"""Explain keys of earlier versions and of the original system (``original.yaml``) that experiments no longer have.

The user of such a file is told what a key is called here, or why there is none, instead of "unknown key".
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

import yaml


class OriginalKeys(NamedTuple):
    """Map the keys of the original system to keys of this package.

    Attributes:
        renamed: key of the original → the key here.
        dropped: key or section of the original → why there is none here.
    """

    renamed: dict[str, str]
    dropped: dict[str, str]


@functools.cache
def original_keys() -> OriginalKeys:
    """Read ``original.yaml``."""
    return OriginalKeys(**yaml.safe_load(files("dglcell.config").joinpath("original.yaml").read_text(encoding="utf-8")))


class Removed(NamedTuple):
    """Say why there is no such key any more.

    Attributes:
        why: the reason.
        left: the value that runs may have recorded, because the package works as with it; ``...`` for any value.
    """

    why: str
    left: object = ...


REMOVED = {
    "data.streaming": Removed("all strains are in memory, of which 20 million trigenic ones take 0.64 GB"),
    "trainer.train_ranking": Removed("the training part is always ranked; predictions take 8 bytes a strain"),
    "optimizer.groups": Removed("all parameters have the same settings", {}),
    "model.cross_relation_heads": Removed("relations are combined by sums, means or pairs"),
    "plot_every": Removed("the picture of a run is drawn at its end"),
    "data.permuted_labels": Removed("labels are never permuted", None),
    "trainer.progress": Removed("a line is printed for every epoch"),
    "trainer.cuda_graph": Removed("steps are launched as they are; it was never run on a GPU"),
    "model.meta_layers": Removed("`dango` weighs a gene's states by two Linear layers, as its publication says"),
    "model.reconstruction_layers": Removed("`dango` reconstructs a network by one Linear layer"),
    "model.reconstruction_target": Removed("`dango` reconstructs which pairs are edges, and no weights"),
    "model.reconstruction_mean": Removed("`dango` takes the mean over all pairs, as its publication says"),
    "model.scorer": Removed("`dango` scores deleted genes as its publication says"),
    "model.attention_layers": Removed("`dango` has two rounds of attention"),
    "data.source.insilico.design": Removed("a screen has all or sampled gene sets", "subsets"),
    "data.source.insilico.query_pairs": Removed("a screen has all or sampled gene sets", None),
    "data.source.insilico.array_size": Removed("a screen has all or sampled gene sets", None),
    "data.source.laboratory.array_types": Removed("`temperature` chooses arrays", []),
    "data.source.laboratory.p_below": Removed("all rows are used; a table of your own may have fewer", None),
    "data.source.laboratory.genes_required": Removed("`genes` keeps rows of which all genes are listed", "all"),
    "data.source.laboratory.keep_marker_locus": Removed("the marker locus of controls is no deleted gene", False),
    "cell.absorb": Removed("all enzyme complexes of a rule are nodes", False),
    "model.operator_heads": Removed("the cross attention of `set_operator` has four heads", 4),
    "model.kernel_ridge": Removed("baselines are fitted beside every model, and `predict --with` chooses", 0.0),
    "model.null_share": Removed("baselines are fitted beside every model, and `predict --with` chooses", 0.0),
    "model.null_names": Removed("baselines are fitted beside every model, and `predict --with` chooses", []),
    "model.autotuned": Removed("strategy and kernel follow from the device"),
    "model.scale_difference": Removed("pooled differences are multiplied by the number of nodes", True),
}
"""This maps keys of earlier versions to why there are none any more. Those of the sections ``model`` and ``loss`` were
keys of the package's own kinds."""


def explain(key: str, value: object = None) -> str | None:
    """Return what a key of the original system is called here, or why a key is gone; None for one that never existed.

    Args:
        value: value of the key; where it is a section, each of its keys is explained.
    """
    return "; ".join(dict.fromkeys(_answers(key, value))) or None


def _answers(key: str, value: object) -> Iterator[str]:
    renamed, dropped = original_keys()
    removed = REMOVED.get(re.sub(r"\bunion\.parts\[\d+\]\.", "", key))
    if removed is not None:
        yield f"leave out `{key}`: {removed.why}"
    elif key in renamed:
        yield f"`{key}` of the original system is `{renamed[key]}` here"
    elif isinstance(value, dict) and value and any(known.startswith(f"{key}.") for known in (*renamed, *dropped)):
        for name, below in value.items():
            yield from _answers(f"{key}.{name}", below)
    elif section := next((k for k in dropped if key == k or key.startswith(f"{k}.")), None):
        yield f"leave out `{key}` of the original system: {dropped[section]}"
