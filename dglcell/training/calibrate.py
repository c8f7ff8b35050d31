"""Give a model's link what it needs of the training part: the link of each phenotype, units, and measured strains."""

from __future__ import annotations

import logging

from torch import Tensor

from dglcell.baselines.composition import not_fitness_like
from dglcell.data.table import CLASSIFICATION
from dglcell.data.transform import Normaliser
from dglcell.errors import ConfigError
from dglcell.models.model import StrainModel
from dglcell.nn.config import AUTO_LINK, COMPARING_LINKS
from dglcell.nn.links import Link
from dglcell.training.prepare import Prepared

log = logging.getLogger("dglcell")


def calibrate(model: StrainModel, prepared: Prepared, normaliser: Normaliser) -> None:
    """Give the model's link, if it has one, what it needs of the training part.

    ``auto`` is ``minimum`` for phenotypes that look like a fitness, or ``saturation`` where strains have strengths or
    conditions, and ``identity`` for all others: scores of interactions, and classes, whose link is the normaliser's
    (``data.normalise: logistic``).

    Raises:
        ConfigError: a phenotype does not look like a fitness, and the link is made for one.
        DataError: there are too many training strains to compare with.
    """
    link = model.find(Link)
    if link is None:
        return
    dataset, rows = prepared.dataset, prepared.parts["train"]
    batch = dataset.take(rows)
    deletions = batch.strengths is None and not batch.conditions
    auto = "minimum" if deletions else "saturation"
    columns = zip(dataset.phenotypes, dataset.kinds, batch.labels.unbind(1), strict=True)
    links = [_link_of(link.name, name, kind, labels_S, auto) for name, kind, labels_S in columns]
    link.choose(links, normaliser.shift, normaliser.scale)
    if link.name == AUTO_LINK:
        log.info("links: %s", ", ".join(f"{name} {one}" for name, one in zip(dataset.phenotypes, links, strict=True)))
    if link.measured is not None and deletions and not set(links).isdisjoint(COMPARING_LINKS):
        link.measured.remember(model.cell, batch.perturbations, batch.labels)


def _link_of(link: str, phenotype: str, kind: str, labels_S: Tensor, auto: str) -> str:
    """Return the link of one phenotype; ``auto`` is what that link is for a fitness."""
    is_fitness = kind != CLASSIFICATION and not_fitness_like(labels_S.numpy()) is None
    if link == AUTO_LINK:
        return auto if is_fitness else "identity"
    if not is_fitness:
        raise ConfigError(
            f"`model.link: {link}` is for phenotypes relative to the wild type, such as a fitness",
            got=f"phenotype '{phenotype}'",
            expected="labels that are mostly positive, are hardly ever negative, and have other values than 0 and 1",
            do="set `model.link: identity` or `auto`",
        )
    return link
