"""Define growth media of a metabolic model, as changes of the model's own medium."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from dglcell.checks import Rule
from dglcell.errors import ConfigError, GraphError, did_you_mean, listing

if TYPE_CHECKING:
    from cobra import Model, Reaction


def check_media(key: str, media: Mapping[str, Mapping[str, float]]) -> None:
    """Refuse uptakes that are negative or not finite."""
    for name, changes in media.items():
        for exchange, uptake in changes.items():
            if not 0 <= uptake < math.inf:
                what, expected = f"`{key}.{name}.{exchange}` is no uptake", "the largest in mmol/gDW/h, 0 for none"
                raise ConfigError(what, got=uptake, expected=expected, do="write uptake without a sign")


MediaChanges = Annotated[dict[str, dict[str, float]], Rule(check_media)]
"""A configuration has media so: medium → exchange reaction → its largest uptake, in mmol/gDW/h.

Exchange reactions that a medium does not name are as in the model's own medium, and 0 closes one for uptake.
"""


@dataclass(frozen=True)
class Media:
    """Hold what a metabolic model may take up in each of M media."""

    names: tuple[str, ...]  #: M media, in the order of the configuration
    exchanges: tuple[str, ...]  #: E exchange reactions, in the order of the model
    uptakes: NDArray[np.float64]  #: [M, E] largest uptakes, in mmol/gDW/h; infinite where the model has no bound

    @classmethod
    def of(cls, model: Model, changes: Mapping[str, Mapping[str, float]], key: str) -> Media:
        """Read media, as the configuration has them at ``key`` (`MediaChanges`), for any cobra model.

        An exchange reaction is one that cobra finds to be, and that the model writes as secretion, so that uptake is a
        negative flux.

        Raises:
            ConfigError: a medium names another reaction, has no uptake at all, or an uptake is no amount.
            GraphError: the model has no exchange reactions.
        """
        check_media(key, changes)
        exchanges = _exchanges(model)
        own = {exchange.id: max(0.0, -exchange.lower_bound) for exchange in exchanges}
        for name, uptakes in changes.items():
            if stray := next((exchange for exchange in uptakes if exchange not in own), None):
                what = f"`{key}.{name}` names no exchange reaction of {model.id or 'the model'}"
                raise ConfigError(what, got=stray, expected=f"among {listing(own)}", do=did_you_mean(stray, own))
            if not any({**own, **uptakes}.values()):
                raise ConfigError(f"`{key}.{name}` closes every exchange reaction", expected="an uptake above 0")
            for exchange in exchanges:
                if exchange.upper_bound < -{**own, **uptakes}[exchange.id]:
                    what, least = f"`{key}.{name}.{exchange.id}`: the model forces more uptake", -exchange.upper_bound
                    do = f"raise the uptake, or set the upper bound of {exchange.id} to 0 or more in the model file"
                    raise ConfigError(what, got=f"{uptakes[exchange.id]:g}", expected=f"at least {least:g}", do=do)
        rows = [list({**own, **uptakes}.values()) for uptakes in changes.values()]
        return cls(tuple(changes), tuple(own), np.array(rows, dtype=np.float64).reshape(-1, len(own)))

    def open(self, model: Model) -> None:
        """Let the model take up as much of everything as it may in any of the media."""
        for exchange, largest in zip(self.exchanges, self.uptakes.max(axis=0).tolist(), strict=True):
            model.reactions.get_by_id(exchange).lower_bound = -largest

    def activities(self) -> dict[str, dict[str, float]]:
        """Return medium → exchange reaction → its uptake as a share of the largest one in any of the media.

        Exchange reactions that are the same in all media are left out, and so are those without uptake.
        """
        uptakes = np.minimum(self.uptakes, 1000.0)  # cobra writes this where a model has no bound
        largest = uptakes.max(axis=0)
        varied = np.flatnonzero((uptakes != largest).any(axis=0))
        return {
            name: {self.exchanges[i]: float(row[i] / largest[i]) for i in varied}
            for name, row in zip(self.names, uptakes, strict=True)
        }


def _exchanges(model: Model) -> list[Reaction]:
    try:
        found, reason = [reaction for reaction in model.exchanges if reaction.reactants], None
    except RuntimeError as error:  # cobra cannot tell which compartment is outside
        found, reason = [], error
    if not found:
        what = "the metabolic model has no exchange reactions, so that there are no media of it"
        raise GraphError(what, got=reason, expected="reactions that secrete a metabolite of the compartment `e`")
    return found
