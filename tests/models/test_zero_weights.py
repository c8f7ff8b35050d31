"""λ by the name of a network, from the configuration, and from how a network grew."""

from __future__ import annotations

import pytest

from dglcell.errors import ConfigError
from dglcell.models.dango import zero_weight

BY_CHANNEL = {
    "neighborhood": 0.1,
    "fusion": 1.0,
    "cooccurence": 1.0,
    "coexpression": 0.1,
    "experimental": 0.1,
    "database": 1.0,
}


@pytest.mark.parametrize("version", ["string9_1_", "string11_0_", "string11_5_", "string12_0_", "string_", ""])
@pytest.mark.parametrize("channel", BY_CHANNEL)
def test_every_version_of_a_channel_has_its_weight(version: str, channel: str) -> None:
    assert zero_weight(f"{version}{channel}", {}) == BY_CHANNEL[channel]


def test_the_configuration_comes_first() -> None:
    given = {"string_fusion": 0.25, "physical": 0.5}
    assert (zero_weight("string_fusion", given), zero_weight("physical", given)) == (0.25, 0.5)


@pytest.mark.parametrize(
    "name", ["physical", "string_coexpression_transferred", "string_textmining", "confusion", "fusions"]
)
def test_other_names_are_refused_with_what_to_set(name: str) -> None:
    with pytest.raises(ConfigError) as error:
        zero_weight(name, {"string_fusion": 1.0})
    lines = str(error.value).splitlines()
    assert lines[0] == f"how much do the pairs that are no edges of '{name}' count when it is reconstructed?"
    assert lines[-1].startswith(f"  do:       set `model.zero_weights: {{{name}: 1.0}}`")
