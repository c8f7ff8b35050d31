"""Choosing a source by its configuration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dglcell.data.sources import SourceConfig, list_sources, load_source
from dglcell.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("collins2006", "collins2007"), ("in-silico", "insilico"), ("kuzmin2020pilot", "kuzmin2020_pilot")],
)
def test_an_unknown_source_suggests_close_ones(name: str, suggestion: str) -> None:
    with pytest.raises(ConfigError, match=rf"no data source is called '{name}'(.|\n)*did you mean .*{suggestion}"):
        load_source(SourceConfig(name=name))


def test_a_hopeless_name_points_to_the_list() -> None:
    with pytest.raises(ConfigError, match="dglcell data list"):
        SourceConfig(name="####").validate()


def test_only_the_chosen_source_is_validated() -> None:
    config = SourceConfig(name="collins2007")
    config.insilico.pairs = "nonsense"
    config.validate()
    config.name = "insilico"
    with pytest.raises(ConfigError, match=r"`data.source.insilico\.pairs`"):
        config.validate()


def test_the_list_says_what_is_available(tmp_path: Path) -> None:
    (tmp_path / "interactions").mkdir()
    (tmp_path / "interactions" / "collins2007_emap.csv.gz").touch()
    available = {info.name: info.available for info in list_sources(str(tmp_path))}
    assert available["insilico"]
    assert available["collins2007"]
    assert not available["tong2004_tested_pairs"]
    assert all(info.description and info.size and info.licence for info in list_sources(str(tmp_path)))


def test_choosing_a_source_imports_neither_cobra_nor_pandas() -> None:
    code = (
        "import sys; from dglcell.data.sources import SourceConfig, list_sources; SourceConfig().validate(); "
        "list_sources(); print([m for m in ('cobra', 'pandas', 'swiglpk', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
